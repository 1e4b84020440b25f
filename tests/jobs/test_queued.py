"""The runs that wait for a worker: counted in each store, without those that no worker could start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from tests.jobs.places import working
from tests.redis_server import NO_SERVER, RedisServer
from toolweave import Agent, ScriptedModel, tool, tool_call
from toolweave.agent import RunStatuses
from toolweave.jobs import Backend, QueuedJobs
from toolweave.state import MemoryStore, SqliteStore, Store


@pytest.fixture(params=["memory", "sqlite", "redis"])
def backend(request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer | None) -> Backend:
    """Return an empty backend whose jobs are noted in a store of each kind."""
    if request.param == "redis":
        if redis_server is None:
            pytest.skip(NO_SERVER)
        return Backend(request.getfixturevalue("redis_url"))
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "runs.db")
    return Backend("memory://", store=store)


def agent_of(name: str, backend: Backend) -> Agent:
    return Agent(ScriptedModel(["done"]), name=name, backend=backend)


def counted(queued: Mapping[str, QueuedJobs]) -> dict[str, int]:
    return {agent: one.count for agent, one in queued.items()}


async def test_submitted_runs_are_counted_by_agent_with_the_time_of_the_oldest(backend: Backend) -> None:
    async with backend:
        statuses = RunStatuses(backend.store)
        assert await statuses.queued() == {}

        clerk = agent_of("clerk", backend)
        first = await clerk.submit("first")
        await clerk.submit("second")
        other = await agent_of("a/b", backend).submit("third")
        queued = await statuses.queued()
        created = [(await run.status()).record.created_at for run in (first, other)]

    assert counted(queued) == {"clerk": 2, "a/b": 1}
    assert [queued["clerk"].oldest_at, queued["a/b"].oldest_at] == pytest.approx(created, abs=0.5)
    assert queued["clerk"].oldest_at <= queued["a/b"].oldest_at


async def test_a_run_that_waits_behind_another_of_its_session_needs_no_worker(backend: Backend) -> None:
    async with backend:
        clerk = agent_of("clerk", backend)
        for message in ("first", "second", "third"):
            await clerk.submit(message, session="s")
        await clerk.submit("other", session="t")
        queued = await RunStatuses(backend.store).queued()

    assert counted(queued) == {"clerk": 2}


async def test_a_run_that_a_worker_does_waits_no_longer_and_one_that_ended_neither(backend: Backend) -> None:
    began, go_on = anyio.Event(), anyio.Event()

    @tool(annotations={"readOnlyHint": True})
    async def look() -> str:
        """Wait."""
        began.set()
        await go_on.wait()
        return "seen"

    async with backend:
        statuses = RunStatuses(backend.store)
        agent = Agent(ScriptedModel([[tool_call("look")], "done"]), name="clerk", tools=[look], backend=backend)
        run = await agent.submit("look")
        assert counted(await statuses.queued()) == {"clerk": 1}
        async with working(backend, agent):
            await began.wait()
            assert await statuses.queued() == {}
            go_on.set()
            assert (await run.result(timeout=60)).status == "completed"
            assert await statuses.queued() == {}


async def test_a_run_that_waits_for_a_person_counts_again_once_it_is_answered(backend: Backend) -> None:
    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    async with backend:
        statuses = RunStatuses(backend.store, queue=backend.queue)
        agent = Agent(
            ScriptedModel([[tool_call("pay")], "done"]), name="clerk", tools=[pay], backend=backend, confirm="always"
        )
        async with working(backend, agent):
            run = await agent.submit("pay", attended="later")
            while (await run.status()).status != "waiting":
                await anyio.sleep(0.02)
        assert await statuses.queued() == {}
        (call,) = await run.waiting()
        await run.approve(call.call_id)
        assert counted(await statuses.queued()) == {"clerk": 1}
