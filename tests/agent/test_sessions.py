"""Conversations that go on: kept by name, one run at a time, and never spoiled by a run that failed."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from toolweave import Agent, ModelError
from toolweave.agent import ResultPolicy, Run
from toolweave.agent._sessions import MemoryConversations, SessionStates
from toolweave.models import ModelRequest, ScriptedModel, ToolMessage, UserMessage, tool_call


def heard(request: ModelRequest) -> list[str]:
    """Return what the user said so far."""
    return [one.text for one in request.messages if isinstance(one, UserMessage)]


async def test_a_session_remembers_and_others_do_not_know() -> None:
    model = ScriptedModel(lambda request: ", ".join(heard(request)))
    agent = Agent(model)

    await agent.send("a", session="one")
    await agent.send("b", session="two")

    assert (await agent.send("c", session="one")).text == "a, c"
    assert (await agent.send("d")).text == "d"
    assert (await agent.send("e")).text == "e"


async def test_runs_of_one_session_take_turns_in_the_order_in_which_they_start() -> None:
    gate = anyio.Event()

    async def speak(request: ModelRequest) -> str:
        if len(model.requests) == 1:
            await gate.wait()
        return "ok"

    model = ScriptedModel(speak)
    agent = Agent(model)
    runs = [agent.send(text, session="s").start() for text in ("first", "second", "third")]
    await anyio.wait_all_tasks_blocked()
    assert [run.status for run in runs] == ["running", "queued", "queued"]
    gate.set()
    for run in reversed(runs):
        await run

    assert [heard(request)[-1] for request in model.requests] == ["first", "second", "third"]
    assert heard(model.requests[2]) == ["first", "second", "third"]


async def test_sessions_do_not_wait_for_each_other() -> None:
    both = anyio.Event()

    async def speak(request: ModelRequest) -> str:
        if len(model.requests) == 2:
            both.set()
        await both.wait()
        return "ok"

    model = ScriptedModel(speak)
    agent = Agent(model)
    runs = [agent.send("hi", session=name).start() for name in ("one", "two")]
    for run in runs:
        await run


async def test_a_queued_run_that_is_cancelled_says_nothing_and_lets_the_next_one_speak() -> None:
    gate = anyio.Event()

    async def speak(request: ModelRequest) -> str:
        await gate.wait()
        return "ok"

    model = ScriptedModel(speak)
    agent = Agent(model)
    first, second, third = (agent.send(text, session="s").start() for text in "abc")
    await anyio.wait_all_tasks_blocked()
    second.cancel()
    gate.set()
    assert [(await run).status for run in (first, second, third)] == ["completed", "cancelled", "completed"]

    assert heard(model.requests[-1]) == ["a", "c"]


async def test_a_message_that_the_model_failed_on_can_simply_be_sent_again() -> None:
    agent = Agent(ScriptedModel([ModelError("busy", model="m"), "hello"]))

    with pytest.raises(ModelError):
        await agent.send("hi", session="s")
    result = await agent.send("hi", session="s")

    assert [type(one).__name__ for one in result.messages] == ["UserMessage", "AssistantMessage"]


async def test_a_run_that_fails_later_keeps_what_was_said_and_done() -> None:
    def count() -> int:
        return 1

    agent = Agent(ScriptedModel([tool_call("count"), ModelError("busy", model="m"), "hello"]), tools=[count])

    with pytest.raises(ModelError):
        await agent.send("hi", session="s")
    result = await agent.send("go on", session="s")

    told = [one for one in result.messages if isinstance(one, ToolMessage)]
    assert [one.outcomes[0].result.text for one in told] == ["1"]


async def test_of_a_cancelled_turn_what_was_done_is_kept_and_the_rest_is_said_to_be_undone() -> None:
    reached = anyio.Event()

    def quick() -> str:
        return "quick"

    async def slow() -> None:
        reached.set()
        await anyio.sleep_forever()

    turns: list[Any] = [[tool_call("quick"), tool_call("slow")], "hello"]
    agent = Agent(ScriptedModel(turns), tools=[quick, slow])
    run = agent.send("hi", session="s")
    finished = 0
    async for event in run:
        finished += type(event).__name__ == "ToolFinished"
        if finished:
            await reached.wait()
            run.cancel()
    result = await agent.send("go on", session="s")

    told = next(one for one in result.messages if isinstance(one, ToolMessage))
    assert [(one.name, one.result.is_error) for one in told.outcomes] == [("quick", False), ("slow", True)]
    assert told.outcomes[0].result.text == "quick"


async def test_memory_keeps_the_conversations_that_were_used_last() -> None:
    memory = MemoryConversations(max_sessions=2)
    for name in ("a", "b", "a", "c"):
        await memory.save(name, [UserMessage.of(name)])

    assert [len(await memory.load(name)) for name in "abc"] == [1, 0, 1]


def test_a_room_with_guests_is_never_given_away() -> None:
    rooms = SessionStates(ResultPolicy())
    kept = rooms.enter("first")
    for number in range(1100):
        rooms.leave(rooms.enter(str(number)))

    assert rooms.enter("first") is kept


async def test_a_tool_that_awaits_a_run_of_its_own_session_is_told_so_instead_of_waiting_for_ever() -> None:
    async def ask_again() -> str:
        return (await agent.send("again", session="s")).text

    agent = Agent(ScriptedModel([tool_call("ask_again"), "done"]), tools=[ask_again])

    result = await agent.send("go", session="s")

    told = next(one for one in result.messages if isinstance(one, ToolMessage))
    assert "would wait for itself" in told.outcomes[0].result.text
    assert result.text == "done"


async def test_a_tool_may_send_on_to_its_own_session_without_waiting() -> None:
    later: list[Run] = []

    async def go_on() -> None:
        later.append(agent.send("more", session="s").start())

    agent = Agent(ScriptedModel([tool_call("go_on"), "done", "done too"]), tools=[go_on])

    assert (await agent.send("go", session="s")).text == "done"
    assert (await later[0]).text == "done too"
