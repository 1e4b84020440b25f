"""Runs and sessions are deleted with everything that is about them, which is searched for in the raw store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.places import working
from tests.raw_store import Raw
from toolweave import Agent, Backend, ScriptedModel, tool, tool_call
from toolweave.agent import RunStatuses, SubmittedRun
from toolweave.errors import RunError
from toolweave.state import MemoryStore, SqliteStore, Store

SECRET = "the-blue-giraffe"


@tool(annotations={"readOnlyHint": True})
def look(what: str) -> str:
    """Look."""
    return f"seen {what}"


def agent_in(backend: Backend, turns: int = 1) -> Agent:
    model = ScriptedModel([[tool_call("look", {"what": SECRET})], f"It is {SECRET}."] * turns)
    return Agent(model, name="a/gent", tools=[look], backend=backend)


async def done(agent: Agent, backend: Backend, *, session: str | None = None) -> SubmittedRun:
    run = await agent.submit(f"Where is {SECRET}?", session=session)
    async with working(backend, agent):
        assert (await run.result(timeout=60)).status == "completed"
    return run


async def test_a_deleted_run_leaves_nothing(raw_place: tuple[Backend, Raw]) -> None:
    backend, raw = raw_place
    async with backend:
        statuses = RunStatuses(backend.store)
        agent = agent_in(backend, 2)
        other = await done(agent, backend)
        run = await done(agent, backend)
        assert SECRET.encode() in await raw()

        assert await statuses.delete(run.id) == 1
        assert await statuses.delete(run.id) == 0
        assert run.id.encode() not in await raw()
        assert [one.run_id for one in await statuses.recent()] == [other.id]
        assert await statuses.delete(other.id) == 1
        found = await raw()
        assert SECRET.encode() not in found
        assert other.id.encode() not in found


async def test_a_deleted_session_leaves_nothing_and_begins_anew(raw_place: tuple[Backend, Raw]) -> None:
    backend, raw = raw_place
    async with backend:
        statuses = RunStatuses(backend.store)
        agent = agent_in(backend, 3)
        runs = [await done(agent, backend, session="s/1") for _ in range(2)]
        await done(agent, backend, session="s")
        assert [(one.agent, one.session, one.messages) for one in await statuses.sessions()] == [
            ("a/gent", "s", 4),
            ("a/gent", "s/1", 8),
        ]

        assert await statuses.delete_session("a/gent", "s/1") == 2
        found = await raw()
        assert [run.id for run in runs if run.id.encode() in found] == []
        assert b"s/1" not in found
        assert [one.session for one in await statuses.sessions()] == ["s"]
        assert await statuses.delete_session("a/gent", "s") == 1
        assert SECRET.encode() not in await raw()


async def test_a_run_that_has_not_ended_is_not_deleted_nor_its_session(raw_place: tuple[Backend, Raw]) -> None:
    backend, _ = raw_place
    async with backend:
        statuses = RunStatuses(backend.store)
        run = await agent_in(backend).submit("Where?", session="s")
        with pytest.raises(RunError, match="has not ended: cancel it first"):
            await statuses.delete(run.id)
        with pytest.raises(RunError, match="has not ended: cancel it first"):
            await statuses.delete_session("a/gent", "s")
        assert (await run.status()).status == "pending"
        await statuses.cancel(run.id)
        assert await statuses.delete_session("a/gent", "s") == 1


@pytest.mark.parametrize("kind", [MemoryStore, SqliteStore])
async def test_runs_below_a_run_are_deleted_with_it_and_those_beside_it_stay(
    kind: type[MemoryStore | SqliteStore], tmp_path: Path
) -> None:
    store: Store = MemoryStore() if kind is MemoryStore else SqliteStore(tmp_path / "runs.db")
    async with store:
        statuses = RunStatuses(store)
        child = Agent(ScriptedModel(["seen"] * 2), name="child", store=store)
        model = ScriptedModel([[tool_call("agent_child", {"message": SECRET})], "done"] * 2)
        parent = Agent(model, name="parent", tools=[child.as_tool()], store=store)
        first = await parent.send("one")
        second = await parent.send("two")
        assert len(await statuses.recent()) == 4

        assert await statuses.delete(first.run_id) == 2
        left = await statuses.recent()
        assert {one.run_id for one in left if one.record.parent_id is None} == {second.run_id}
        assert [one.record.parent_id for one in left if one.record.parent_id is not None] == [second.run_id]
