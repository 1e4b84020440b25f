"""Bounds of a run: each ends it with its own reason, and leaves a conversation that can go on."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from toolweave import Agent
from toolweave.agent import Limits
from toolweave.errors import RunError
from toolweave.models import AssistantMessage, Finished, ScriptedModel, TextPart, ToolMessage, Usage, tool_call


def spent(*parts: Any, **usage: Any) -> Finished:
    """Return a turn that took something."""
    made = tuple(TextPart(text=part) if isinstance(part, str) else part for part in parts)
    message = AssistantMessage(parts=made)
    return Finished(message=message, usage=Usage(**usage), stop_reason="tool_calls" if message.tool_calls else "end")


class Counter:
    """A tool that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def count(self) -> int:
        self.calls += 1
        return self.calls


async def test_a_model_that_never_stops_is_stopped_after_max_steps_and_its_last_calls_are_not_made() -> None:
    counter = Counter()
    model = ScriptedModel(lambda request: tool_call("count"))

    result = await Agent(model, tools=[counter.count], max_steps=3).send("go")

    assert (result.status, result.stop_reason, result.steps) == ("stopped", "max_steps", 3)
    assert counter.calls == 2
    last = result.messages[-1]
    assert isinstance(last, ToolMessage)
    assert "not finished" in last.outcomes[0].result.text
    with pytest.raises(RunError):
        result.check()


@pytest.mark.parametrize(
    "limits, usage, reason",
    [
        (Limits(tokens=30), {"input_tokens": 10, "output_tokens": 5}, "token_limit"),
        (Limits(cost=0.2), {"cost": 0.1}, "cost_limit"),
    ],
)
async def test_tokens_and_cost_are_bounded(limits: Limits, usage: dict[str, Any], reason: str) -> None:
    counter = Counter()
    model = ScriptedModel(lambda request: spent("hm", tool_call("count"), **usage))

    result = await Agent(model, tools=[counter.count], limits=limits).send("go")

    assert (result.status, result.stop_reason, result.steps, counter.calls) == ("stopped", reason, 2, 1)
    assert result.text == "hm"


async def test_an_answer_that_just_passes_a_bound_is_an_answer_all_the_same() -> None:
    result = await Agent(ScriptedModel([spent("done", input_tokens=99)]), limits=Limits(tokens=10)).send("go")

    assert (result.text, result.stop_reason) == ("done", "end")


async def test_tool_calls_are_bounded_and_a_turn_that_would_pass_the_bound_makes_none() -> None:
    counter = Counter()
    turns = [[tool_call("count"), tool_call("count")], [tool_call("count"), tool_call("count")], "done"]

    result = await Agent(ScriptedModel(turns), tools=[counter.count], limits=Limits(tool_calls=3)).send("go")

    assert (result.stop_reason, counter.calls) == ("tool_call_limit", 2)


async def test_time_is_bounded_also_in_the_middle_of_a_tool() -> None:
    async def forever() -> None:
        await anyio.sleep_forever()

    agent = Agent(ScriptedModel([tool_call("forever"), "done"]), tools=[forever], limits=Limits(seconds=0.05))
    result = await agent.send("go")

    assert (result.status, result.stop_reason) == ("stopped", "time_limit")
    assert isinstance(result.messages[-1], ToolMessage)


async def test_a_conversation_goes_on_after_a_bound() -> None:
    counter = Counter()
    turns = [tool_call("count"), tool_call("count"), "three"]
    agent = Agent(ScriptedModel(turns), tools=[counter.count], max_steps=2)

    await agent.send("go", session="s")
    result = await agent.send("and?", session="s")

    assert result.text == "three"
    called = [one for one in result.messages if isinstance(one, AssistantMessage) and one.tool_calls]
    told = [one for one in result.messages if isinstance(one, ToolMessage)]
    assert [one.tool_calls[0].id for one in called] == [one.outcomes[0].call_id for one in told]


def test_a_server_gets_at_least_one_call() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Limits(parallel_per_server=0)


@pytest.mark.parametrize("bounds", [{"tokens": -1}, {"seconds": -0.5}, {"depth": -1}, {"cost": float("nan")}])
def test_a_bound_below_zero_is_refused_by_its_name(bounds: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bounds))} is 0 or more, or None"):
        Limits(**bounds)
