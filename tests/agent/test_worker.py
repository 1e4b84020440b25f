"""What workers make of submitted runs that are not simply done: held elsewhere, lost, unreadable, never to begin."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.jobs.places import client_of, working
from toolweave import Agent
from toolweave.agent import resubmit_runs, run_handlers, work_runs
from toolweave.agent._stored.records import LEASES, RUN_NOTES, RUNS, STARTS, RunRecord
from toolweave.errors import StoreError
from toolweave.jobs import Backend, Job, Lease, Reschedule
from toolweave.models import ModelRequest, ScriptedModel, UserMessage
from toolweave.state import Document, MemoryStore, SqliteStore


class Counted:
    """An agent's model that answers with what was sent, and notes it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, request: ModelRequest) -> str:
        self.asked.append([one.text for one in request.messages if isinstance(one, UserMessage)][-1])
        return self.asked[-1]


def agent_at(backend: Backend | None, answer: Any = None, **options: Any) -> Agent:
    return Agent(ScriptedModel(answer or Counted()), name=options.pop("name", "worker"), backend=backend, **options)


async def lease_of_another(backend: Backend, run_id: str) -> None:
    """Have a run be held on another machine."""
    holder = {"holder": uuid.uuid4().hex, "process": 1, "machine": "elsewhere"}
    await backend.store.put(LEASES, run_id, holder)


async def handle(agent: Agent, backend: Backend, run_id: str, **details: Any) -> None:
    """Do a job as a worker does."""
    topic = f"runs:{agent.name}"
    await run_handlers([agent], backend)[topic](Job(topic=topic, key=run_id, **details))


async def test_a_job_of_a_run_that_nobody_knows_is_dropped_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async with Backend() as backend:
        other = await agent_at(backend, name="other").submit("x")
        await handle(agent_at(backend), backend, "nothing")
        await handle(agent_at(backend), backend, other.id)
    assert [record.getMessage() for record in caplog.records] == [
        "a job of agent 'worker' was dropped: run 'nothing' is not in the store",
        f"a job of agent 'worker' was dropped: run '{other.id}' is one of agent 'other'",
    ]


async def test_what_a_newer_version_wrote_is_left_to_it(caplog: pytest.LogCaptureFixture) -> None:
    async with Backend() as backend:
        agent = agent_at(backend)
        run = await agent.submit("x")
        found = await backend.store.get(RUNS, run.id)
        assert found is not None
        await backend.store.put(RUNS, run.id, {**found.value, "form": 99})
        await handle(agent, backend, run.id)
        assert "newer version" in caplog.text
        await backend.store.put(RUNS, run.id, found.value)
        async with working(backend, agent):
            assert (await run).text == "x"


async def test_a_run_that_cannot_begin_ends_as_failed(caplog: pytest.LogCaptureFixture) -> None:
    @asynccontextmanager
    async def broken() -> AsyncGenerator[Any, None]:
        raise RuntimeError("the server is gone")
        yield

    async with Backend() as backend:
        agent = agent_at(backend, on_error="raise")
        agent.add_mcp(broken, name="files")
        async with working(backend, agent):
            record = await (await agent.submit("x", session="s"))
        left = await backend.store.scan(RUN_NOTES.submitted)
    assert (record.status, record.stop_reason, record.error) == ("failed", "error", "the server is gone")
    assert left == []


async def test_a_run_whose_beginning_is_gone_ends_as_failed() -> None:
    async with Backend() as backend:
        agent = agent_at(backend)
        run = await agent.submit("x")
        await backend.store.delete(STARTS, run.id)
        async with working(backend, agent):
            record = await run
    assert (record.status, "no longer in the store" in (record.error or "")) == ("failed", True)


@pytest.mark.parametrize("most", [None, 1, 5])
async def test_a_run_that_several_workers_died_of_ends_as_failed(most: int | None) -> None:
    model = Counted()
    options: dict[str, Any] = {} if most is None else {"max_deaths": most}
    async with Backend() as backend:
        agent = agent_at(backend, model)
        run = await agent.submit("x")
        deaths = most or 3
        for _ in range(deaths - 1):
            await lease_of_another(backend, run.id)
            with pytest.raises(Reschedule):
                await handle(agent, backend, run.id, deaths=1)
        await backend.store.delete(LEASES, run.id)
        handler = run_handlers([agent], backend, **options)["runs:worker"]
        await handler(Job(topic="runs:worker", key=run.id, deaths=1))
        record = await run
        left = [
            found.key for name in (RUN_NOTES.submitted, RUN_NOTES.deaths) for found in await backend.store.scan(name)
        ]
    assert (record.status, record.error, model.asked) == ("failed", f"{deaths} workers died while it ran", [])
    assert left == []


async def test_a_worker_that_is_only_lost_for_a_while_has_not_died_of_its_run() -> None:
    async with Backend() as backend:
        agent = agent_at(backend)
        run = await agent.submit("x")
        await lease_of_another(backend, run.id)
        for _ in range(20):
            with pytest.raises(Reschedule):
                await handle(agent, backend, run.id, deaths=1)
        await backend.store.delete(LEASES, run.id)
        await handle(agent, backend, run.id)
        assert (await run).text == "x"


@pytest.mark.parametrize("deaths", [0, 1])
async def test_a_run_without_a_lease_is_not_taken_over_right_after_an_outage(deaths: int) -> None:
    async with Backend() as backend:
        agent = agent_at(backend)
        run = await agent.submit("x")
        found = await backend.store.get(RUNS, run.id)
        assert found is not None
        running = {**found.value, "status": "running", "attempts": 1}
        await backend.store.put(RUNS, run.id, running)

        with pytest.raises(Reschedule):
            await handle(agent, backend, run.id, deaths=deaths, after_outage=True)
        await handle(agent, backend, run.id)

        assert (await run).text == "x"


async def test_a_run_that_no_worker_began_starts_right_after_an_outage() -> None:
    async with Backend() as backend:
        agent = agent_at(backend)
        run = await agent.submit("x")
        await handle(agent, backend, run.id, after_outage=True)
        assert (await run).text == "x"


async def test_runs_that_workers_died_of_go_on_one_at_a_time_so_that_none_dies_of_another() -> None:
    going = together = 0

    async def answer(request: ModelRequest) -> str:
        nonlocal going, together
        going += 1
        together = max(together, going)
        await anyio.sleep(0.01)
        going -= 1
        return "done"

    async with Backend() as backend:
        agents = [agent_at(backend, answer, name=name) for name in ("one", "other")]
        runs = [(await agent.submit(str(number)), agent.name) for number in range(4) for agent in agents]
        for run, _ in runs:
            await backend.store.put(RUN_NOTES.deaths, run.id, {"deaths": 2, "holder": None})
        handlers = run_handlers(agents, backend)
        later: list[str] = []

        async def deliver(run_id: str, agent: str) -> None:
            try:
                await handlers[f"runs:{agent}"](Job(topic=f"runs:{agent}", key=run_id))
            except Reschedule:
                later.append(run_id)

        while not all([(await run.status()).record.done for run, _ in runs]):
            async with anyio.create_task_group() as tasks:
                for run, name in runs:
                    tasks.start_soon(deliver, run.id, name)
    assert together == 1
    assert later


async def test_a_cancel_outlives_the_worker_that_was_to_hear_it() -> None:
    model = Counted()
    async with Backend() as backend:
        agent = agent_at(backend, model)
        run, child = await agent.submit("x"), await agent.submit("y")
        await lease_of_another(backend, run.id)
        assert await child.cancel()
        assert await run.cancel()
        assert (await run.status()).record.done is False
        await backend.store.delete(LEASES, run.id)  # it died before it looked
        async with working(backend, agent):
            record = await run
        left = [
            found.key for name in (RUN_NOTES.submitted, RUN_NOTES.cancels) for found in await backend.store.scan(name)
        ]
    assert (record.status, model.asked, left) == ("cancelled", [], [])


@pytest.mark.slow
async def test_a_run_that_goes_on_elsewhere_is_waited_for_and_taken_over_when_it_is_left() -> None:
    model = Counted()
    async with Backend() as backend:
        agent = agent_at(backend, model)
        run = await agent.submit("held")
        lease = Lease(backend.store, LEASES, run.id)
        await lease.acquire()
        async with working(backend, agent, concurrency=1):
            other = await agent.submit("other")
            await other  # what is held takes no slot
            assert model.asked == ["other"]
            await lease.release()
            with anyio.fail_after(40):  # sooner than lost runs are looked for
                record = await run
    assert (record.text, model.asked) == ("held", ["other", "held"])


async def test_a_run_that_has_ended_is_not_done_again() -> None:
    model = Counted()
    async with Backend() as backend:
        agent = agent_at(backend, model)
        async with working(backend, agent):
            run = await agent.submit("x")
            await run
            await backend.queue.submit(Job(topic="runs:worker", key=run.id))
            await (await agent.submit("y"))
    assert model.asked == ["x", "y"]


async def test_a_queue_that_lost_its_jobs_is_given_them_again_when_a_worker_starts() -> None:
    store, model = MemoryStore(), Counted()
    async with Backend(store=store) as lost:
        agent = agent_at(lost)
        runs = [await agent.submit("1"), await agent.submit("2", session="s"), await agent.submit("3")]
        await runs[2].cancel()
    async with Backend(store=store) as backend, working(backend, agent_at(backend, model)):
        # sooner than they are looked for again
        records = [await run for run in runs]
    assert [record.status for record in records] == ["completed", "completed", "cancelled"]
    assert sorted(model.asked) == ["1", "2"]


async def test_a_queue_that_is_flushed_while_runs_wait_is_given_them_again(redis_url: str, tmp_path: Path) -> None:
    begun, go_on = anyio.Event(), anyio.Event()
    asked: list[str] = []
    records: list[RunRecord] = []

    async def answer(request: ModelRequest) -> str:
        first = request.messages[0]
        assert isinstance(first, UserMessage)
        asked.append(first.text)
        begun.set()
        await go_on.wait()
        return "done"

    async with SqliteStore(tmp_path / "runs.db") as store, Backend(redis_url, store=store) as backend:
        agent = agent_at(backend, answer)
        async with working(backend, agent, concurrency=1), anyio.create_task_group() as tasks:
            runs = [await agent.submit(str(number)) for number in range(3)]
            await begun.wait()
            async with client_of(redis_url) as redis:
                await redis.flushall()
            tasks.start_soon(lambda: resubmit_runs([agent], backend, seconds=0.2))
            go_on.set()
            records += [await run for run in runs]
            tasks.cancel_scope.cancel()
    assert [record.status for record in records] == ["completed"] * 3
    assert sorted(asked) == ["0", "1", "2"]


class Reading(MemoryStore):
    """A store that notes whose records are read."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[str] = []

    async def read(self, names: Sequence[tuple[str, str]]) -> Sequence[Document | None]:
        self.records += [key for collection, key in names if collection == RUNS]
        return await super().read(names)


async def test_who_looks_for_lost_runs_reads_none_of_those_that_wait(redis_url: str) -> None:
    store = Reading()
    async with Backend(redis_url, store=store) as backend:
        agent = agent_at(backend)
        (worker,) = run_handlers([agent], backend).values()
        first, second, third = [await agent.submit(str(number)) for number in range(3)]
        store.records.clear()
        assert await worker.submit_lost() == 0
        assert store.records == []
        async with client_of(redis_url) as redis:
            for run in (first, third):
                (known,) = [key async for key in redis.scan_iter(match=f"*:runs:{run.id}")]
                await redis.delete(known)
        assert await worker.submit_lost() == 2
        assert sorted(store.records) == sorted([first.id, third.id])
        assert second.id not in store.records


async def test_a_note_that_is_left_of_an_ended_run_is_deleted_and_does_not_start_it_again() -> None:
    model = Counted()
    async with Backend() as backend:
        agent = agent_at(backend, model)
        (worker,) = run_handlers([agent], backend).values()
        run = await agent.submit("1")
        async with working(backend, agent):
            await run
        # as a worker leaves it that dies between the end of a run and the deletion of its notes
        note = worker.topic.note(run.id)
        await backend.store.write([note])

        assert await worker.submit_lost() == 0
        assert await backend.store.get(note.collection, note.key) is None
    assert model.asked == ["1"]


async def test_a_run_is_not_begun_before_those_that_were_submitted_to_its_session_before() -> None:
    model = Counted()
    async with Backend() as backend:
        agent = agent_at(backend, model)
        first, second = await agent.submit("1", session="s"), await agent.submit("2", session="s")
        with pytest.raises(Reschedule):
            await handle(agent, backend, second.id)
        await handle(agent, backend, first.id)
        await handle(agent, backend, second.id)
    assert model.asked == ["1", "2"]


async def test_an_agent_that_keeps_nothing_keeps_its_runs_where_its_worker_does() -> None:
    async with Backend() as backend:
        agent = agent_at(None)
        async with working(backend, agent):
            assert (await (await agent_at(backend).submit("1", session="s"))).text == "1"
            assert (await (await agent.submit("2", session="s"))).text == "2"
            assert agent.durable is not None
            assert len(await agent.durable.conversations.load("s")) == 4
            assert len((await agent.send("3", session="s")).messages) == 6


async def test_workers_refuse_agents_whose_runs_they_could_not_find_or_tell_apart() -> None:
    async with Backend() as backend:
        with pytest.raises(ValueError, match="'worker' has a store and no backend"):
            run_handlers([agent_at(None, store=MemoryStore())], backend)
        with pytest.raises(ValueError, match="two agents are called 'worker'"):
            run_handlers([agent_at(backend), agent_at(backend)], backend)


async def test_workers_do_other_jobs_too() -> None:
    done = anyio.Event()

    async def work(job: Job) -> None:
        done.set()

    async with Backend() as backend, anyio.create_task_group() as tasks:
        agent = agent_at(backend)
        tasks.start_soon(lambda: work_runs([agent], backend, also={"letters": work}))
        await backend.queue.submit(Job(topic="letters", key="a"))
        await done.wait()
        assert (await (await agent.submit("x"))).text == "x"
        tasks.cancel_scope.cancel()


@pytest.mark.slow  # it tries for fifteen seconds
async def test_a_worker_that_does_not_reach_its_queue_says_so() -> None:
    backend = Backend("redis://127.0.0.1:1", store=MemoryStore())
    with pytest.raises(StoreError, match=r"redis://127\.0\.0\.1:1"):
        await work_runs([agent_at(backend)], backend)
