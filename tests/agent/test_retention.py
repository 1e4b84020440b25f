"""Runs and conversations are kept as long as their owner wants, and then nothing is left of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent.test_deadlines import DAY
from tests.clocks import Clock
from toolweave import Agent, Backend, ScriptedModel, tool, tool_call
from toolweave.agent import RunStatuses, WaitingPolicy
from toolweave.jobs import Retention
from toolweave.state import MemoryStore, Store, iter_documents

MARKERS = {"run-index"}
"""The collections whose documents are about no run."""


@tool
def delete(name: str) -> str:
    """Delete a file."""
    return f"{name} is deleted"


def agent_of(clock: Clock, text: Any = "done", **options: Any) -> Agent:
    agent = Agent(ScriptedModel([text] * 3), name="desk", tools=[delete], confirm="always", **options)
    assert agent.durable is not None
    agent.durable.clock = clock
    return agent


async def left(store: Store) -> set[str]:
    """Return the collections that have documents about runs or conversations."""
    assert isinstance(store, MemoryStore)
    return set(await store.collections()) - MARKERS


async def test_a_run_and_its_conversation_are_kept_as_long_as_their_owner_wants() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    statuses = RunStatuses(store, clock=clock)
    kept = Retention(run_seconds=7 * DAY, conversation_seconds=60 * DAY)
    agent = agent_of(clock, store=store, retention=kept)
    await agent.send("go", session="ann")

    clock.now += 7 * DAY - 1
    assert len(await statuses.recent()) == 1
    assert (await statuses.stats()).total == 1
    clock.now += 3 * 3600
    assert await statuses.recent() == []
    assert (await statuses.stats()).total == 0
    assert [one.session for one in await statuses.sessions()] == ["ann"]
    assert await left(store) == {"conversations", "conversation-sessions"}

    await agent.send("and now?", session="ann")
    clock.now += 59 * DAY
    assert [one.messages for one in await statuses.sessions()] == [4]
    clock.now += DAY
    assert await left(store) == set()


async def test_without_a_setting_runs_are_kept_for_30_days_and_conversations_until_they_are_deleted() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    await agent_of(clock, store=store).send("go", session="ann")
    clock.now += 30 * DAY - 1
    assert len(await RunStatuses(store, clock=clock).recent()) == 1
    clock.now += 4000 * DAY
    assert await left(store) == {"conversations", "conversation-sessions"}


async def test_the_setting_of_a_backend_is_for_agents_without_one() -> None:
    backend = Backend("memory://", retention=Retention(run_seconds=DAY))
    clock = Clock()
    plain = agent_of(clock, backend=backend)
    other = agent_of(clock, backend=backend, retention=Retention(run_seconds=2 * DAY))
    runs = [await plain.submit("go"), await other.submit("go")]
    assert [(await run.status()).record.keep_seconds for run in runs] == [DAY, 2 * DAY]


async def test_whoever_changes_a_run_keeps_it_as_long_as_its_agent_does() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    statuses = RunStatuses(store, clock=clock)
    agent = agent_of(
        clock, tool_call("delete", {"name": "a"}, id="c"), store=store, retention=Retention(run_seconds=DAY)
    )
    for is_cancelled in (True, False):
        run_id = (await agent.send("go", attended="later")).run_id
        clock.now += 3600
        if is_cancelled:
            await statuses.cancel(run_id)
        else:
            await statuses.deny(run_id, "c")
        clock.now += DAY - 1
        assert await statuses.get(run_id) is not None
        clock.now += 2
        assert await statuses.get(run_id) is None


async def test_a_run_that_waits_again_and_again_is_kept_whole_until_it_ends() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    statuses = RunStatuses(store, clock=clock)
    turns = [tool_call("delete", {"name": name}, id=f"c-{name}") for name in "abcd"]
    agent = Agent(
        ScriptedModel([*turns, "done"]),
        name="desk",
        tools=[delete],
        confirm="always",
        store=store,
        retention=Retention(run_seconds=10 * DAY),
        waiting=WaitingPolicy(seconds=9 * DAY),
    )
    assert agent.durable is not None
    agent.durable.clock = clock
    result = await agent.send("go", attended="later")
    for name in "abcd":
        clock.now += 8 * DAY
        await statuses.approve(result.run_id, f"c-{name}")
        result = await (await agent.resume(result.run_id))
    assert (result.status, result.text) == ("completed", "done")
    assert [one.run_id for one in await statuses.recent()] == [result.run_id]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"run_seconds": 0}, ValueError, "run_seconds is a number of seconds, finite and more than 0, not 0"),
        ({"run_seconds": -DAY}, ValueError, "run_seconds is a number of seconds, finite and more than 0"),
        ({"run_seconds": float("nan")}, ValueError, "run_seconds is a number of seconds, finite and more than 0"),
        ({"run_seconds": None}, TypeError, "run_seconds is a number of seconds, not NoneType"),
        ({"conversation_seconds": -1}, ValueError, "conversation_seconds is a number of seconds, finite"),
        ({"conversation_seconds": "60"}, TypeError, "conversation_seconds is a number of seconds, not str"),
        ({"audit_seconds": 5}, TypeError, "unexpected keyword argument"),
    ],
)
def test_a_duration_that_makes_no_sense_is_refused(options: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Retention(**options)


def test_a_number_in_place_of_a_retention_is_refused() -> None:
    wrong: Any = 30
    with pytest.raises(TypeError, match=r"retention is Retention\(\.\.\.\), or None, not int"):
        Agent(ScriptedModel(["x"]), store=MemoryStore(), retention=wrong)
    with pytest.raises(TypeError, match=r"retention is Retention\(\.\.\.\), or None, not int"):
        Backend("memory://", retention=wrong)
    with pytest.raises(TypeError, match=r"waiting is WaitingPolicy\(\.\.\.\), or None, not int"):
        Agent(ScriptedModel(["x"]), store=MemoryStore(), waiting=wrong)


async def test_every_document_of_a_run_expires() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    agent = agent_of(clock, tool_call("delete", {"name": "a"}, id="c"), store=store)
    run_id = (await agent.send("go", attended="later", session="ann")).run_id
    await RunStatuses(store, clock=clock).approve(run_id, "c")
    endless = {
        name
        for name in await store.collections()
        async for found in iter_documents(store, name)
        if found.expires_at is None
    }
    assert endless <= {"conversations", "conversation-sessions", "approvals"} | MARKERS
