"""Runs are found by status, agent, session and time without reading the others, whatever happened to the processes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.agent.faulty_store import MODES, FaultyStore, ProcessDiedError
from toolweave import Agent, ScriptedModel
from toolweave.agent import RunInfo, RunStatuses
from toolweave.agent._stored.records import RUNS, record_of
from toolweave.errors import ModelError, RunError, StoreError
from toolweave.models import ModelRequest, ToolMessage, UserMessage, tool_call
from toolweave.state import Change, Document, MemoryStore, SqliteStore, Store, iter_documents

AGENTS = ("desk", "a/gent")
SESSIONS = (None, "ann", "ann/2", "bob:1")


class CountingStore(FaultyStore):
    """A view of a store that counts the documents that are read.

    Attributes:
        documents: Their number.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.documents = 0

    async def get(self, collection: str, key: str) -> Document | None:
        self.documents += 1
        return await super().get(collection, key)

    async def read(self, names: Sequence[tuple[str, str]]) -> Sequence[Document | None]:
        self.documents += len(names)
        return await super().read(names)

    async def scan(self, collection: str, *, prefix: str = "", after: str = "", limit: int = 100) -> Sequence[Document]:
        found = await super().scan(collection, prefix=prefix, after=after, limit=limit)
        self.documents += len(found)
        return found


def desk(store: Store, name: str = "desk") -> Agent:
    """Return an agent that deletes what it is asked to, which needs a yes; "fail" makes its model fail."""

    def delete(name: str) -> str:
        return f"{name} is deleted"

    def answer(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if isinstance(last, ToolMessage):
            return "done"
        assert isinstance(last, UserMessage)
        if last.text == "fail":
            raise ModelError("down", model="m")
        if last.text == "nothing":
            return "nothing is done"
        return [tool_call("delete", {"name": last.text}, id="c")]

    return Agent(ScriptedModel(answer), name=name, tools=[delete], confirm="always", store=store)


async def looked(store: Store) -> dict[str, int]:
    """Return the number of documents that each way to look at runs reads."""
    counting = CountingStore(store)
    statuses = RunStatuses(counting)
    await statuses.stats()
    counts: dict[str, int] = {}
    for name, look in {
        "recent": statuses.recent,
        "recent of an agent": lambda: statuses.recent(agent="desk"),
        "recent of a session": lambda: statuses.recent(session="ann"),
        "waiting": statuses.waiting_runs,
        "interrupted": statuses.interrupted,
        "active": statuses.active,
        "stats": statuses.stats,
        "find": lambda: statuses.find("no-such-run"),
    }.items():
        counting.documents = 0
        await look()
        counts[name] = counting.documents
    return counts


async def test_looking_at_runs_reads_as_many_documents_however_many_runs_are_kept() -> None:
    store = MemoryStore()
    agent = desk(store)
    for name in ("a", "b", "c"):
        await agent.send(name, attended="later", session="ann")
    for _ in range(100):
        await desk(store, "other").send("nothing")
    few = await looked(store)
    for _ in range(200):
        await desk(store, "other").send("nothing")

    assert await looked(store) == few
    assert max(few.values()) <= 150


@dataclass
class History:
    """Things that happen to the runs of a store, each in a process that may die or lose the store at any write."""

    seed: int
    store: MemoryStore = field(default_factory=MemoryStore)
    number: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    async def step(self) -> None:
        """Do one thing, and fail at one of its first writes or at none."""
        view = FaultyStore(self.store, self.random.randrange(12), self.random.choice(MODES))
        runs = [found.key async for found in iter_documents(self.store, RUNS)]
        with suppress(ProcessDiedError, RunError, StoreError, ModelError):
            if not runs or self.random.random() < 0.4:
                await self._begin(view)
            else:
                await self._change(view, self.random.choice(runs))

    async def _begin(self, view: Store) -> None:
        self.number += 1
        text = self.random.choice(("a", "nothing", "fail"))
        await desk(view, self.random.choice(AGENTS)).begin(
            [UserMessage.of(text)],
            run_id=f"run-{self.number}",
            session=self.random.choice(SESSIONS),
            parent_id=self.random.choice((None, "run-1")),
            attended="later",
        )

    async def _change(self, view: Store, run_id: str) -> None:
        statuses = RunStatuses(view)
        match self.random.randrange(6):
            case 0:
                await statuses.approve(run_id, "c")
            case 1:
                await statuses.deny(run_id, "c")
            case 2:
                await statuses.cancel(run_id)
            case 3:
                await statuses.delete(run_id)
            case 4:
                await statuses.stats()
            case _:
                info = await statuses.get(run_id)
                assert info is not None
                await (await desk(view, info.record.agent).resume(run_id))


async def scanned(store: Store) -> list[RunInfo]:
    """Return all runs, by reading every record."""
    statuses = RunStatuses(store)
    return [await statuses.info(record_of(found)) async for found in iter_documents(store, RUNS)]


def ids(runs: Sequence[RunInfo]) -> list[str]:
    """Return the ids of runs, sorted."""
    return sorted(one.run_id for one in runs)


async def check(store: Store) -> None:
    """Compare what the indexes say of the runs of a store with their records."""
    statuses = RunStatuses(store)
    runs = await scanned(store)
    stats = await statuses.stats()
    ended = [one for one in runs if one.record.done and one.record.parent_id is None]
    assert stats.by_status == Counter(one.status for one in runs)
    assert stats.total == len(runs)
    assert stats.input_tokens == sum(one.record.usage.input_tokens for one in ended)
    assert stats.output_tokens == sum(one.record.usage.output_tokens for one in ended)
    assert ids(await statuses.waiting_runs()) == ids([one for one in runs if one.status == "waiting"])
    left = [one for one in runs if one.status in ("interrupted", "pending")]
    assert ids(await statuses.interrupted()) == ids(left)
    assert ids(await statuses.recent(1000)) == ids(runs)
    for agent in AGENTS:
        mine = [one for one in runs if one.record.agent == agent]
        assert ids(await statuses.recent(1000, agent=agent)) == ids(mine)
        assert ids(await statuses.waiting_runs(agent=agent)) == ids([one for one in mine if one.status == "waiting"])
    for session in SESSIONS[1:]:
        there = [one for one in runs if one.record.session == session]
        assert ids(await statuses.recent(1000, session=session)) == ids(there)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
async def test_the_indexes_agree_with_the_records_after_any_history(seed: int) -> None:
    history = History(seed)
    for _ in range(60):
        await history.step()
        await check(history.store)


INDEXES = ("run-agent-times", "run-session-times", "run-open", "run-waiting", "run-ended", "run-totals", "run-index")


async def made_old(store: Store) -> None:
    """Make a store as it was before there were indexes."""
    for collection in INDEXES:
        for found in [one async for one in iter_documents(store, collection)]:
            await store.delete(collection, found.key)
    for found in [one async for one in iter_documents(store, RUNS)]:
        value = {name: member for name, member in found.value.items() if name != "until"}
        await store.put(RUNS, found.key, value, ttl=1e6)


@pytest.mark.parametrize("make", [MemoryStore, SqliteStore])
async def test_a_store_that_was_written_before_there_were_indexes_gets_them(
    make: type[MemoryStore | SqliteStore],
) -> None:
    async with make() as store:
        agent = desk(store)
        waiting = await agent.send("a", attended="later", session="ann")
        await agent.send("nothing", session="bob:1")
        with suppress(ModelError):
            await desk(store, "a/gent").send("fail")
        with suppress(ProcessDiedError):
            await desk(FaultyStore(store, 3)).begin([UserMessage.of("a")], run_id="left")
        await made_old(store)
        before = await store.get(RUNS, "left")

        await check(store)
        # A process may be about to replace it.
        assert await store.get(RUNS, "left") == before
        stats = await RunStatuses(store).stats()
        assert stats.by_status == {"waiting": 1, "completed": 1, "failed": 1, "interrupted": 1}
        await RunStatuses(store).approve(waiting.run_id, "c")
        await (await agent.resume(waiting.run_id))
        assert await RunStatuses(store).delete_session("desk", "bob:1") == 1
        await check(store)
        assert (await RunStatuses(store).stats()).by_status == {"completed": 1, "failed": 1, "interrupted": 1}


async def test_a_store_that_can_only_be_read_is_looked_at_too(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with SqliteStore(path) as store:
        await desk(store).send("a", attended="later")

    class ReadOnlyStore(FaultyStore):
        """A view of a store that refuses every write."""

        async def write(self, changes: Sequence[Change], *, signal: str | None = None) -> Sequence[int] | None:
            raise StoreError("attempt to write a readonly database")

    async with SqliteStore(path) as store:
        statuses = RunStatuses(ReadOnlyStore(store))
        assert len(await statuses.waiting_runs()) == 1
        assert (await statuses.stats()).by_status == {"waiting": 1}
