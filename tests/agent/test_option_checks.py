"""Options of agents and models that are misspelt or of another type: refused at once, by name."""

from __future__ import annotations

from typing import Any

import pytest

from toolweave import Agent, tool
from toolweave.agent import Limits
from toolweave.models import AnthropicModel, OpenAICompatibleModel, ScriptedModel
from toolweave.state import MemoryStore


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent(**options: Any) -> Agent[Any]:
    return Agent(ScriptedModel(["hi"]), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_error": "riase"}, "on_error is 'skip' or 'raise', not 'riase'"),
        ({"on_transport_error": "rise"}, "on_transport_error is 'result' or 'raise', not 'rise'"),
        ({"on_unknown": "rrun"}, "on_unknown is 'error', 'ask' or 'rerun', not 'rrun'"),
        ({"max_steps": "3"}, "max_steps is a number of turns, not str"),
        ({"max_steps": True}, "max_steps is a number of turns, not bool"),
        ({"max_steps": 0}, "max_steps is at least 1, not 0"),
        ({"defer_tools": "all"}, "defer_tools is a number of tokens, or None, not str"),
        ({"limits": {"tokens": 3}}, r"limits is Limits\(...\), or None, not dict"),
        ({"settings": {"temperature": 1}}, r"settings is ModelSettings\(...\), or None, not"),
        ({"result_policy": {"most": 1}}, r"result_policy is ResultPolicy\(...\), or None, not"),
        ({"history": "short"}, "history is a function of the messages, or None, not str"),
        ({"store": "runs.sqlite"}, r"store is a store, such as .*open_store\(url\), not str"),
        ({"system": 3}, "system is a string, or None, not int"),
        ({"name": None}, "name is a string, not NoneType"),
        ({"max_steps": None}, "max_steps is a number of turns, not NoneType"),
        ({"limits": Limits}, r"limits is Limits\(...\), or None, not the class Limits"),
        ({"confirm": ["add"]}, r"confirm= is .* or a function of the call and the tool, not \['add'\]"),
        ({"confirm": "add"}, "confirm= is .* not 'add'"),
        ({"tools": [None]}, "an object of type NoneType offers no tools; give a function"),
    ],
)
def test_an_option_that_would_decide_nothing_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        agent(**options)


def test_the_error_of_a_store_given_as_a_text_shows_no_password() -> None:
    with pytest.raises(TypeError, match="store is a store") as refused:
        agent(store="redis://:hunter2@host")
    assert "hunter2" not in str(refused.value)


def test_an_agent_among_tools_is_refused_with_the_call_that_makes_it_one() -> None:
    with pytest.raises(TypeError, match=r"offers tools to its own runs; pass its as_tool\(\) instead"):
        agent(tools=[add, agent(tools=[add])])
    with pytest.raises(TypeError, match=r"as_tool\(\)"):
        agent().tools.add(agent())  # pyright: ignore[reportArgumentType]


def test_a_model_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="model is a Model or a text such as 'anthropic:claude-sonnet-4-5', not int"):
        Agent(3)  # pyright: ignore[reportCallIssue, reportArgumentType]


@pytest.mark.parametrize("attended", ["latter", "no", 2])
async def test_a_run_is_not_attended_because_of_a_misspelt_word(attended: Any) -> None:
    with pytest.raises(ValueError, match="attended is True, False or 'later', not"):
        agent().send("hi", attended=attended)


async def test_a_misspelt_policy_of_one_resumed_run_is_refused() -> None:
    with pytest.raises(ValueError, match="on_unknown is 'error', 'ask' or 'rerun', not 'rreun'"):
        await agent(store=MemoryStore()).resume("a", on_unknown="rreun")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("bound", ["3", -1])
def test_a_bound_that_is_no_number_is_refused(bound: Any) -> None:
    with pytest.raises(ValueError, match="tokens is 0 or more, or None for no bound, not"):
        Limits(tokens=bound)


def test_misspelt_options_of_models_are_refused() -> None:
    with pytest.raises(ValueError, match="api is 'chat' or 'responses', not 'respones'"):
        OpenAICompatibleModel(model="x", api="respones")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="cache is '5m', '1h' or None, not '5 m'"):
        AnthropicModel("x", api_key="k", cache="5 m")  # pyright: ignore[reportArgumentType]
