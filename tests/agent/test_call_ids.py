"""Providers that give ids of calls twice, or none: results, approvals and journals go by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from toolweave import Agent
from toolweave.agent import ApprovalRequested, ToolArguments, ToolCallStarted, ToolFinished
from toolweave.agent._workers.spawn import spawn_tools
from toolweave.models import AssistantMessage, ScriptedModel, ToolCallPart, ToolMessage
from toolweave.state import MemoryStore, Store


def call(name: str, call_id: str = "call_0", /, **arguments: object) -> ToolCallPart:
    return ToolCallPart(id=call_id, name=name, arguments=arguments)


def echo(number: int) -> int:
    return number


@pytest.mark.parametrize("given", ["call_0", ""])
@pytest.mark.parametrize("store", [lambda: None, MemoryStore])
async def test_calls_of_one_turn_with_one_id_are_all_made_and_answered(
    given: str, store: Callable[[], Store | None]
) -> None:
    model = ScriptedModel([[call("echo", given, number=1), call("echo", given, number=2)], "done"])

    result = await Agent(model, tools=[echo], store=store()).send("go")

    assert (result.stop_reason, result.text) == ("end", "done")
    told = next(one for one in result.messages if isinstance(one, ToolMessage))
    said = next(one for one in result.messages if isinstance(one, AssistantMessage))
    assert [one.result.text for one in told.outcomes] == ["1", "2"]
    assert [one.call_id for one in told.outcomes] == [one.id for one in said.tool_calls]


async def test_an_id_that_an_earlier_turn_had_is_told_apart_in_the_events_too() -> None:
    model = ScriptedModel([[call("echo", number=1)], [call("echo", number=2)], "done"])
    run = Agent(model, tools=[echo]).send("go")

    seen = [event async for event in run]

    begun = [event.call.id for event in seen if isinstance(event, ToolCallStarted)]
    assert len(set(begun)) == 2
    assert [event.call_id for event in seen if isinstance(event, ToolArguments)] == begun
    assert [event.call.id for event in seen if isinstance(event, ToolFinished)] == begun


async def test_two_calls_of_one_id_are_allowed_each_by_itself() -> None:
    model = ScriptedModel([[call("echo", number=1), call("echo", number=2)], "done"])
    run = Agent(model, tools=[echo], confirm="always").send("go")

    async for event in run:
        if isinstance(event, ApprovalRequested):
            assert run.approve(event) if event.call.arguments["number"] == 1 else run.deny(event)

    told = next(one for one in (await run).messages if isinstance(one, ToolMessage))
    assert [one.result.is_error for one in told.outcomes] == [False, True]


async def test_tasks_of_two_turns_are_two_though_their_calls_have_one_id() -> None:
    worker = Agent(ScriptedModel(["a", "b"]), name="worker", store=MemoryStore())
    model = ScriptedModel([[call("spawn", prompt="one")], [call("spawn", prompt="two")], [call("spawn_await")], "done"])

    result = await Agent(model, tools=spawn_tools(worker)).send("go")

    told = [one.outcomes[0].result for one in result.messages if isinstance(one, ToolMessage)]
    content = cast("dict[str, list[dict[str, str]]]", told[-1].structured_content)
    assert sorted(task["output"] for task in content["tasks"]) == ["a", "b"]


@pytest.mark.slow
async def test_the_work_of_a_turn_does_not_grow_with_the_length_of_the_run() -> None:
    looks: list[int] = []

    class Counted(AssistantMessage):
        @property
        def tool_calls(self) -> tuple[ToolCallPart, ...]:
            looks[-1] += 1
            return tuple(part for part in self.parts if isinstance(part, ToolCallPart))

    for steps in (50, 200):
        looks.append(0)
        turns = [Counted(parts=(call("echo", f"c{step}", number=step),)) for step in range(steps - 1)]
        result = await Agent(ScriptedModel([*turns, "done"]), tools=[echo], max_steps=steps).send("go")
        assert result.steps == steps

    short, long = looks
    assert long < 5 * short
