"""Tasks in a store and those who would fill it, hang it or read it: what they get is bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import anyio
import pytest

from tests.clocks import Clock
from tests.serve.shared_tasks import accept
from tests.serve.till import Frail, Jobs, Till
from toolweave.errors import RequestError, StoreError
from toolweave.serve._tasks.remote import RemoteTasks
from toolweave.serve._tasks.store import REFUSED_SECONDS, TASK_NOTES, TASKS, StoreSemaphore, TaskStore
from toolweave.serve.request import Json
from toolweave.state import Change, Document, MemoryStore, RedisStore

FULL = "no more tasks can be taken on now; try again later"


async def begin_until_full(till: Till, who: str | None = None, most: int = 50) -> int:
    """Call a tool as long as that becomes a task; return how often it did."""
    for count in range(most):
        try:
            await till.ask("tools/call", who=who, name="work")
        except RequestError as exc:
            if (exc.code, exc.message) != (-32603, FULL):
                raise
            return count
    return most


async def test_no_more_tasks_are_outstanding_than_may_be_and_those_that_are_done_make_room() -> None:
    till = Till(slots=3)
    till.doings.go.set()
    begun = await begin_until_full(till)
    documents = len(await till.store.scan(TASKS))
    await till.workers[0].do(till.queue.jobs[0])
    till.clock.now += REFUSED_SECONDS
    again = await begin_until_full(till)

    assert (begun, documents, again) == (3, 3, 1)
    assert len(till.queue.jobs) == 4


async def test_a_task_that_is_cancelled_is_outstanding_until_its_job_is_done() -> None:
    till = Till(slots=2)
    for _ in range(2):
        name = (await till.ask("tools/call", name="work"))["taskId"]
        await till.ask("tasks/cancel", taskId=name)
    before = await begin_until_full(till)
    for job in till.queue.jobs:
        await till.workers[0].do(job)
    till.clock.now += REFUSED_SECONDS
    after = await begin_until_full(till)

    assert (before, after) == (0, 2)
    assert till.doings.begun == []


async def test_a_task_that_no_worker_takes_makes_room_when_it_is_forgotten() -> None:
    till = Till(slots=2, ttl_ms=1_000)
    await begin_until_full(till)
    till.clock.now += 62

    assert await begin_until_full(till) == 2


async def test_a_call_that_cannot_be_given_to_a_worker_takes_no_place() -> None:
    till = Till(slots=1)
    till.queue.away = True
    for _ in range(3):
        with pytest.raises(RequestError, match="given to a worker now"):
            await till.ask("tools/call", name="work")
    till.queue.away = False

    assert await begin_until_full(till) == 1


async def test_one_principal_cannot_take_the_places_of_all_others() -> None:
    till = Till(slots=20)
    greedy = await begin_until_full(till, "greedy")
    modest = [await begin_until_full(till, who) for who in ("anna", "ben", "carl")]
    still = await begin_until_full(till, "greedy")

    assert (greedy, modest, still) == (16, [2, 2, 0], 0)


async def test_replicas_that_begin_tasks_at_the_same_moment_take_no_more_than_there_are(redis_url: str) -> None:
    store = RedisStore(redis_url)
    clock = Clock()
    replicas = [StoreSemaphore(store, "shop", clock, slots=20) for _ in range(3)]
    taken: list[str] = []

    async def take(permits: StoreSemaphore) -> None:
        permit = await permits.acquire(None, 60)
        if permit is not None:
            taken.append(permit.key)

    async with store:
        async with anyio.create_task_group() as tasks:
            for number in range(60):
                tasks.start_soon(take, replicas[number % 3])
        for _ in range(60):
            clock.now += REFUSED_SECONDS
            await take(replicas[0])

    assert sorted(taken) == sorted(set(taken))
    assert len(taken) == 20


class Counting(MemoryStore):
    """A store that counts its requests."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    async def get(self, collection: str, key: str) -> Document | None:
        """Return a document."""
        self.asked[collection] += 1
        return await super().get(collection, key)

    async def read(self, names: Sequence[tuple[str, str]]) -> Sequence[Document | None]:
        """Return documents."""
        self.asked.update(collection for collection, _ in names)
        return await super().read(names)

    async def write(self, changes: Sequence[Change], *, signal: str | None = None) -> Sequence[int] | None:
        """Write documents."""
        self.asked.update(one.collection for one in changes)
        return await super().write(changes, signal=signal)


async def test_a_server_that_is_full_says_so_without_asking_each_time() -> None:
    store = Counting()
    clock = Clock()
    permits = StoreSemaphore(store, "shop", clock, slots=10)
    taken = [await permits.acquire(None, 60) for _ in range(11)]
    store.asked.clear()
    refused = [await permits.acquire(who, 60) for who in (None, "anna") * 50]

    assert taken.count(None) == 1
    assert refused == [None] * 100
    assert store.asked == {}


async def test_what_a_call_and_its_answers_said_is_forgotten_with_the_end_of_the_task() -> None:
    till = Till()
    name, job = await till.begun("ask")
    during: list[Document] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(till.workers[0].do, job)
        for keys in (("a", "b"), ("a-2",)):
            while keys[0] not in (await till.ask("tasks/get", taskId=name)).get("inputRequests", {}):
                await anyio.sleep(0.01)
            answers = {key: accept("hunter2") for key in keys}
            await till.ask("tasks/update", taskId=name, inputResponses=answers)
        during.extend(await till.store.scan(TASKS))
    shown = await till.ask("tasks/get", taskId=name)
    (kept,) = await till.store.scan(TASKS)

    assert "hunter2" in str(during[0].value)
    assert shown["status"] == "completed"
    assert kept.value["answers"] == {}
    notes = ("task-calls", TASK_NOTES.leases, TASK_NOTES.submitted, "task-permits till")
    assert [await till.store.scan(one) for one in notes] == [[]] * 4


async def test_the_arguments_of_a_task_that_is_cancelled_are_forgotten_although_no_worker_is_there() -> None:
    till = Till()
    name, _ = await till.begun("work")
    before = await till.store.scan("task-calls")
    await till.ask("tasks/cancel", taskId=name)

    assert len(before) == 1
    assert await till.store.scan("task-calls") == []


class Stuck(Frail):
    """A store that can be slow, and finishes a write that has begun, as one over a network does."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.stuck: anyio.Event | None = None
        self.slow: dict[str, float] = {}
        self.slow_reads: dict[str, float] = {}

    async def get(self, collection: str, key: str) -> Document | None:
        """Return a document, in its time."""
        await anyio.sleep(self.slow_reads.get(collection, 0))
        return await super().get(collection, key)

    async def write(self, changes: Sequence[Change], *, signal: str | None = None) -> Sequence[int] | None:
        """Write documents, in their time."""
        with anyio.CancelScope(shield=True):
            if self.stuck is not None:
                await self.stuck.wait()
                raise StoreError("nobody answered")
            await anyio.sleep(max(self.slow.get(one.collection, 0) for one in changes))
        return await super().write(changes, signal=signal)


def till_that_sticks(lease_seconds: float) -> tuple[Till, Stuck]:
    """Return a till and its store."""
    store = Stuck(Clock())
    return Till(lease_seconds=lease_seconds, store=store), store


@pytest.mark.slow
async def test_a_worker_stops_its_tool_in_time_although_a_write_to_the_store_hangs() -> None:
    till, store = till_that_sticks(1.0)
    _, job = await till.begun("hang")
    stopped = False

    async def work() -> None:
        with pytest.raises(StoreError):
            await till.workers[0].do(job)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await till.doings.until(1)
        store.stuck = anyio.Event()
        with anyio.move_on_after(30):
            await till.doings.ended.wait()
            stopped = True
        store.stuck.set()

    assert stopped


@pytest.mark.parametrize("slow", ["task-calls", TASKS])
async def test_a_worker_begins_nothing_when_the_store_was_so_slow_that_another_may_have_the_task(slow: str) -> None:
    till, store = till_that_sticks(0.2)
    name, job = await till.begun("work")
    (before,) = await store.scan(TASKS)
    if slow == TASKS:
        store.slow = {TASKS: 0.3}
    else:
        store.slow_reads = {"task-calls": 0.3}
    with pytest.raises(StoreError, match="too slow"):
        await till.workers[0].do(job)
    store.slow = {}
    store.slow_reads = {}
    found = await store.get(TASKS, name)
    till.doings.go.set()
    with anyio.fail_after(60):
        await till.worker(15.0).do(job)
    shown = await till.ask("tasks/get", taskId=name)

    assert found is not None
    assert found.value["runner"] is None
    assert await store.scan(TASK_NOTES.deaths) == []
    assert before.value["runner"] is None
    assert shown["result"]["content"][0]["text"] == "worked"
    assert till.doings.begun == ["work"]


class Ticks:
    """A sleep whose time a test controls."""

    def __init__(self) -> None:
        self._tick = anyio.Event()

    async def __call__(self, seconds: float) -> None:
        await self._tick.wait()

    async def tick(self, count: int = 1) -> None:
        """Let everybody who sleeps look so many times."""
        for _ in range(count):
            await anyio.wait_all_tasks_blocked()
            tick = self._tick
            self._tick = anyio.Event()
            tick.set()
        await anyio.wait_all_tasks_blocked()


async def listened(count: int, store: Counting) -> tuple[TaskStore, dict[str, Json]]:
    """Return a store with so many tasks that run, and how they are."""
    kept = TaskStore(store, Jobs(), "till", lambda: 1_000_000.0)
    known: dict[str, Json] = {}
    for number in range(count):
        task: Json = {"taskId": f"task-{number}", "status": "working", "lastUpdatedAt": ""}
        value = {"form": 1, "owner": None, "server": "till", "task": task, "expires_at": 2_000_000.0, "permit": None}
        await store.put(TASKS, f"task-{number}", value | {"runner": None, "answers": {}, "refused": {}})
        known[f"task-{number}"] = task
    return kept, known


async def test_however_many_listen_each_task_is_looked_at_once_and_rarely_while_nothing_happens() -> None:
    store = Counting()
    ticks = Ticks()
    kept, known = await listened(10, store)
    remote = RemoteTasks(kept, sleep=ticks)
    received: list[tuple[str, str]] = []
    looks = 0
    store.asked.clear()

    def hear(name: str, shown: Json) -> None:
        received.append((name, shown["status"]))

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(remote.watch, known, hear)
        await ticks.tick(100)
        looks = store.asked[TASKS]
        await kept.change("task-3", lambda entry: entry.task.update(status="completed") is None)
        await ticks.tick(12)
        tasks.cancel_scope.cancel()

    assert 100 <= looks <= 200
    assert received == [("task-3", "completed")] * 100


async def test_whoever_goes_on_listening_hears_what_happens_when_the_one_who_looked_has_left() -> None:
    store = Counting()
    ticks = Ticks()
    kept, known = await listened(3, store)
    remote = RemoteTasks(kept, sleep=ticks)
    received: list[str] = []
    done = anyio.Event()

    async def stay() -> None:
        await remote.watch(known, lambda name, shown: received.append(name))
        done.set()

    async with anyio.create_task_group() as tasks:
        first = anyio.CancelScope()

        async def leave() -> None:
            with first:
                await remote.watch(known, lambda name, shown: received.append("gone"))

        tasks.start_soon(leave)
        await ticks.tick()
        tasks.start_soon(stay)
        await ticks.tick()
        first.cancel()
        await anyio.wait_all_tasks_blocked()
        for name in known:
            await kept.change(name, lambda entry: entry.task.update(status="cancelled") is None)
        await ticks.tick(12)
        assert done.is_set()

    assert sorted(received) == sorted(known)
