"""What a run does next, as a pure function: no model, no tool, no event loop."""

from __future__ import annotations

from typing import Any

import pytest

from toolweave import Limits, ToolResult, ToolSpec
from toolweave.agent._loop.step import (
    AskModel,
    AvailableTools,
    Finish,
    RunRules,
    RunState,
    RunTools,
    closed,
    next_step,
    outcomes_of,
)
from toolweave.agent._output import Output
from toolweave.models import (
    AssistantMessage,
    Message,
    ModelSettings,
    ProviderTool,
    TextPart,
    ToolCallPart,
    ToolMessage,
    Usage,
)
from toolweave.models import UserMessage as User
from toolweave.tools import ToolSnapshot

READ = ToolSpec(name="read")
ALONE = ToolSpec(name="alone", meta={"sequential": True})
PICK = ToolSpec(name="pick")
TOOLS = ToolSnapshot((READ, ALONE, PICK), version=1)
OFFER = AvailableTools(tools=TOOLS, find=TOOLS.find, client={"pick": PICK})


def said(*parts: str | ToolCallPart) -> AssistantMessage:
    return AssistantMessage(parts=tuple(TextPart(text=part) if isinstance(part, str) else part for part in parts))


def call(name: str, number: int = 0) -> ToolCallPart:
    return ToolCallPart(id=f"{name}{number}", name=name)


def after(*messages: Any, **more: Any) -> RunState:
    """Return a state one turn of the model later than the message that was sent."""
    return RunState(messages=[User.of("hi"), *messages], steps=1, **more)


def test_a_conversation_that_was_just_continued_goes_to_the_model_with_everything_it_needs() -> None:
    hosted = ProviderTool(provider="x", definition={})
    rules = RunRules(system="be kind", settings=ModelSettings(temperature=0.5), output=Output({"type": "object"}))
    offer = AvailableTools(tools=TOOLS, find=TOOLS.find, deferred=frozenset({"read"}), provider=(hosted,))
    old: list[Message] = [User.of("a"), said("b"), User.of("c")]

    step = next_step(RunState(messages=old), rules, offer)

    assert isinstance(step, AskModel)
    request = step.request
    assert request.messages == tuple(old)
    assert (request.system, request.settings.temperature, request.tools) == ("be kind", 0.5, TOOLS)
    assert (request.provider_tools, request.deferred, request.output_schema) == (
        (hosted,),
        {"read"},
        {"type": "object"},
    )


def test_history_that_ends_with_the_model_is_not_taken_for_an_answer_of_this_run() -> None:
    assert isinstance(next_step(RunState(messages=[User.of("a"), said("b")]), RunRules(), OFFER), AskModel)


def test_an_answer_ends_the_run() -> None:
    assert next_step(after(said("done"), stop="end"), RunRules(), OFFER) == Finish(reason="end")


@pytest.mark.parametrize("stop", ["max_tokens", "refusal"])
def test_a_model_that_would_not_go_on_ends_it_with_its_reason(stop: Any) -> None:
    assert next_step(after(said("x"), stop=stop), RunRules(), OFFER) == Finish(reason=stop)


def test_a_pause_is_sent_again_as_it_is() -> None:
    state = after(said("searching"), stop="pause")

    step = next_step(state, RunRules(), OFFER)

    assert isinstance(step, AskModel)
    assert (step.request.messages, step.added) == (tuple(state.messages), ())


def test_calls_are_grouped_by_what_may_run_at_the_same_time() -> None:
    calls = [call("read", 1), call("gone"), call("alone", 1), call("alone", 2), call("read", 2), call("read", 3)]

    step = next_step(after(said(*calls), stop="tool_calls"), RunRules(), OFFER)

    assert isinstance(step, RunTools)
    assert [[one.id for one in group] for group in step.groups] == [
        ["read1", "gone0"],
        ["alone1"],
        ["alone2"],
        ["read2", "read3"],
    ]


def test_calls_count_whatever_the_model_gives_as_its_reason() -> None:
    assert isinstance(next_step(after(said(call("read")), stop="end"), RunRules(), OFFER), RunTools)
    assert next_step(after(said(call("read")), stop="refusal"), RunRules(), OFFER) == Finish(reason="refusal")


def test_the_clients_own_calls_are_handed_over_when_the_others_are_done() -> None:
    state = after(said(call("pick"), call("read")), stop="tool_calls")

    first = next_step(state, RunRules(), OFFER)
    state.results["read0"] = ToolResult.of("x")
    then = next_step(state, RunRules(), OFFER)

    assert first == RunTools(groups=((call("read"),),))
    assert then == Finish(reason="client_tools", pending=(call("pick"),))


def test_results_go_to_the_model() -> None:
    state = after(said(call("read")), ToolMessage(outcomes=()), stop="tool_calls")

    assert isinstance(next_step(state, RunRules(), OFFER), AskModel)


@pytest.mark.parametrize(
    "rules, more, reason",
    [
        (RunRules(max_steps=1), {}, "max_steps"),
        (RunRules(limits=Limits(tokens=10)), {"usage": Usage(input_tokens=6, output_tokens=4)}, "token_limit"),
        (RunRules(limits=Limits(cost=1)), {"usage": Usage(cost=1.5)}, "cost_limit"),
        (RunRules(limits=Limits(tool_calls=2)), {"tool_calls": 2}, "tool_call_limit"),
    ],
)
def test_a_bound_stops_before_tools_run_whose_results_nobody_would_read(
    rules: RunRules, more: Any, reason: Any
) -> None:
    assert next_step(after(said(call("read")), stop="tool_calls", **more), rules, OFFER) == Finish(reason=reason)


def test_an_answer_that_does_not_fit_goes_back_with_what_is_wrong() -> None:
    rules = RunRules(output=Output({"type": "object", "required": ["n"]}), limits=Limits(output_retries=1))

    step = next_step(after(said("{}"), stop="end"), rules, OFFER)

    assert isinstance(step, AskModel)
    (complaint,) = step.added
    assert step.request.messages[-1] is complaint
    assert isinstance(complaint, User)
    assert "n" in complaint.text
    assert next_step(after(said("{}"), stop="end", repairs=1), rules, OFFER) == Finish(reason="invalid_output")
    assert next_step(after(said('{"n": 1}'), stop="end"), rules, OFFER) == Finish(reason="end", output={"n": 1})


def test_outcomes_stand_in_the_order_of_the_calls_however_they_ended() -> None:
    calls = (call("read", 1), call("read", 2))
    state = after(said(*calls))
    state.results["read2"] = ToolResult.of("2")
    state.results["read1"] = ToolResult.of("1")

    assert [one.result.text for one in outcomes_of(state, calls)] == ["1", "2"]


def test_closing_answers_what_nobody_will_and_leaves_what_is_pending() -> None:
    state = after(said(call("read", 1), call("read", 2), call("pick")))
    state.results["read1"] = ToolResult.of("1")

    closed(state, "too late", (call("pick"),))

    last = state.messages[-1]
    assert isinstance(last, ToolMessage)
    assert [(one.call_id, one.result.text) for one in last.outcomes] == [("read1", "1"), ("read2", "too late")]


def test_closing_a_conversation_that_is_whole_changes_nothing() -> None:
    state = after(said("done"))
    before = list(state.messages)

    closed(state, "too late")

    assert state.messages == before
