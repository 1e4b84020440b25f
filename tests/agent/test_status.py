"""What the runs of a store are doing, seen from any process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pydantic
import pytest

from toolweave import Agent
from toolweave.agent import RunStatuses, StoreJournal
from toolweave.agent._events import RunResult
from toolweave.agent._journal import RunStart
from toolweave.agent._stored.durable import Durable
from toolweave.agent._stored.records import LEASES, create
from toolweave.errors import ModelError
from toolweave.jobs import Lease
from toolweave.models import AssistantMessage, Finished, ScriptedModel, TextPart, Usage, UserMessage
from toolweave.state import Change, MemoryStore, Put, SqliteStore, Store

pytestmark = pytest.mark.requirement("R103")

every_store = pytest.mark.parametrize("make", [MemoryStore, SqliteStore])


def start(run_id: str, **options: Any) -> RunStart:
    return RunStart(run_id=run_id, agent="agent", messages=(UserMessage.of(f"do {run_id}"),), sent=1, **options)


async def put(store: Store, run_id: str, *, at: float = 0.0, status: Any = "running", **options: Any) -> None:
    """Leave a run in the store that nobody runs."""
    assert await create(store, start(run_id, **options), status=status, now=at, ttl=60) is not None


@every_store
async def test_a_run_is_running_while_somebody_runs_it_and_interrupted_when_nobody_does(
    make: Callable[[], Store],
) -> None:
    async with make() as store:
        statuses = RunStatuses(store)
        durable = Durable(store)
        journal = StoreJournal(durable, "one")
        async with journal.held(lambda: None):
            await journal.started(start("one"))
            during, active = await statuses.get("one"), await statuses.active()
        after, left = await statuses.get("one"), await statuses.interrupted()

        assert during is not None
        assert during.status == "running"
        assert [one.run_id for one in active] == ["one"]
        assert after is not None
        assert (after.status, after.record.prompt) == ("interrupted", "do one")
        assert [one.run_id for one in left] == ["one"]
        assert await statuses.active() == []
        assert await statuses.get("none") is None


@pytest.mark.slow
@every_store
async def test_recent_runs_come_the_newest_first(make: Callable[[], Store]) -> None:
    async with make() as store:
        for number in range(120):  # more than a page
            await put(store, f"run-{number % 7}-{number}", at=1_000.0 + number)
        recent = await RunStatuses(store).recent(110)

        assert [one.run_id.split("-")[2] for one in recent] == [str(number) for number in range(119, 9, -1)]
        assert await RunStatuses(store).recent(0) == []
        assert await RunStatuses(store).recent(5, agent="other") == []


async def test_statistics_count_every_run_where_it_is_and_usage_once() -> None:
    store = MemoryStore()
    turn = Finished(
        message=AssistantMessage(parts=(TextPart(text="hi"),)), usage=Usage(input_tokens=5, output_tokens=2)
    )
    await Agent(ScriptedModel([turn]), store=store).send("go")
    await Agent(ScriptedModel([turn]), store=store).begin([UserMessage.of("go")], parent_id="above")
    with pytest.raises(ModelError):
        await Agent(ScriptedModel([ModelError("down", model="m")]), store=store).send("go")
    await put(store, "left")
    await put(store, "waiting", status="pending")
    stats = await RunStatuses(store).stats()

    assert stats.by_status == {"completed": 2, "failed": 1, "interrupted": 1, "pending": 1}
    assert stats.total == 5
    assert (stats.input_tokens, stats.output_tokens) == (5, 2)


async def test_a_pending_run_is_interrupted_only_when_its_parent_is_not_at_work() -> None:
    store = MemoryStore()
    await put(store, "child", status="pending", parent_id="parent")
    lease = Lease(store, LEASES, "parent")
    await lease.acquire()
    held = await RunStatuses(store).interrupted()
    await lease.release()
    left = await RunStatuses(store).interrupted()

    assert held == []
    assert [one.run_id for one in left] == ["child"]


@every_store
async def test_cancelling_reaches_every_run_below_wherever_it_runs(make: Callable[[], Store]) -> None:
    async with make() as store:
        await put(store, "top", at=1)
        await put(store, "left", at=2, parent_id="top")
        await put(store, "done", at=3, status="completed", parent_id="top")
        await put(store, "running", at=4, parent_id="left")
        lease = Lease(store, LEASES, "running")
        await lease.acquire()
        statuses = RunStatuses(store)

        assert await statuses.cancel("top")
        asked = await store.get(LEASES, "running")
        seen = {one.run_id: one.status for one in await statuses.recent()}
        await lease.release()
        assert not await statuses.cancel("top")
        assert not await statuses.cancel("none")

    assert seen == {"top": "cancelled", "left": "cancelled", "done": "completed", "running": "running"}
    assert asked is not None
    assert asked.value["cancel"] is True


async def test_runs_that_are_each_others_parents_are_cancelled_once() -> None:
    store = MemoryStore()
    await put(store, "a", parent_id="b")
    await put(store, "b", parent_id="a")

    assert await RunStatuses(store).cancel("a")
    assert {one.status for one in await RunStatuses(store).recent()} == {"cancelled"}


@dataclass
class Sum:
    total: int
    parts: tuple[Path, ...] = ()


class Verdict(pydantic.BaseModel):
    guilty: bool


@pytest.mark.parametrize(
    ("kind", "said", "kept"),
    [
        (Sum, '{"total": 3, "parts": ["a"]}', {"total": 3, "parts": ["a"]}),
        (Verdict, '{"guilty": true}', {"guilty": True}),
        (int, '{"value": 5}', 5),
    ],
)
async def test_a_typed_answer_is_kept_as_json(kind: Any, said: str, kept: Any) -> None:
    store = MemoryStore()
    run = Agent(ScriptedModel([said]), store=store, output_type=kind).send("go")
    result = await run
    found = await RunStatuses(store).get(run.id)

    assert isinstance(result.output, kind)
    assert found is not None
    assert found.record.output == kept


async def test_a_run_that_ends_while_it_is_cancelled_stays_as_it_ended() -> None:
    class EndsMeanwhile(MemoryStore):
        ended = False

        async def write(self, changes: Sequence[Change], **options: Any) -> Sequence[int] | None:
            first = changes[0]
            if (
                isinstance(first, Put)
                and first.collection == "runs"
                and first.value["status"] == "cancelled"
                and not self.ended
            ):
                self.ended = True
                await journal.finished(RunResult(run_id="one", text="done"))
            return await super().write(changes, **options)

    store = EndsMeanwhile()
    journal = StoreJournal(Durable(store), "one")
    await journal.started(start("one"))

    assert not await RunStatuses(store).cancel("one")
    found = await RunStatuses(store).get("one")
    assert found is not None
    assert (found.status, found.record.text) == ("completed", "done")


async def test_a_run_that_waits_for_its_session_is_not_in_the_store_yet_and_then_runs() -> None:
    store, reached, release = MemoryStore(), anyio.Event(), anyio.Event()

    async def wait(_: Any) -> str:
        reached.set()
        await release.wait()
        return "ok"

    agent = Agent(ScriptedModel(wait), store=store)
    first, second = agent.send("a", session="s").start(), agent.send("b", session="s").start()
    await reached.wait()
    active = [one.run_id for one in await RunStatuses(store).active()]
    release.set()
    await second

    assert active == [first.id]
    assert [one.run_id for one in await RunStatuses(store).recent()] == [second.id, first.id]
