"""Jobs that workers do: once each, again after a failure, elsewhere after a shutdown, and through losses of Redis."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.jobs.places import PLACES, client_of, url_of
from tests.programs import free_port
from tests.redis_server import RedisServer
from toolweave.errors import StoreError
from toolweave.jobs import Backend, Handler, Job, Reschedule
from toolweave.state import MemoryStore


@pytest.fixture(params=PLACES)
def url(request: pytest.FixtureRequest, redis_server: RedisServer | None) -> str:
    return url_of(request.param, redis_server)


def queue_at(url: str, **options: Any) -> Backend:
    return Backend(url, store=MemoryStore(), **options)


@asynccontextmanager
async def working(
    backend: Backend, handlers: Mapping[str, Handler], *, concurrency: int = 1
) -> AsyncGenerator[None, None]:
    """Do the jobs of these topics meanwhile."""
    started = anyio.Event()

    async def work() -> None:
        await backend.queue.work(handlers, concurrency=concurrency, started=started.set)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await started.wait()
            yield
            tasks.cancel_scope.cancel()


class Done:
    """Notes what is done, and waits for it."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self._news = anyio.Event()

    async def __call__(self, job: Job) -> None:
        self.jobs.append(job)
        self._news.set()
        self._news = anyio.Event()

    @property
    def keys(self) -> list[str]:
        return [job.key for job in self.jobs]

    async def wait(self, count: int) -> None:
        while len(self.jobs) < count:
            await self._news.wait()


async def test_a_job_is_done_with_what_it_is_about(url: str) -> None:
    done = Done()
    async with queue_at(url) as backend, working(backend, {"letters": done}):
        assert await backend.queue.submit(Job(topic="letters", key="a", payload={"words": ["ä", 1, None]}))
        await done.wait(1)
    assert done.jobs == [Job(topic="letters", key="a", payload={"words": ["ä", 1, None]})]


async def test_a_job_waits_for_the_first_worker(url: str) -> None:
    done = Done()
    async with queue_at(url) as backend:
        for key in "ab":
            await backend.queue.submit(Job(topic="letters", key=key))
        async with working(backend, {"letters": done}):
            await done.wait(2)
    assert done.keys == ["a", "b"]


async def test_jobs_are_submitted_where_nothing_is_entered(url: str) -> None:
    done = Done()
    backend = queue_at(url)
    assert await backend.queue.submit(Job(topic="letters", key="a"))
    async with working(backend, {"letters": done}):
        await done.wait(1)
    assert done.keys == ["a"]


async def test_only_workers_that_know_a_topic_are_given_its_jobs(url: str) -> None:
    letters, numbers = Done(), Done()
    async with queue_at(url) as backend:
        for topic, key in (("numbers", "1"), ("letters", "a"), ("numbers", "2")):
            await backend.queue.submit(Job(topic=topic, key=key))
        async with working(backend, {"letters": letters}):
            await letters.wait(1)
        async with working(backend, {"numbers": numbers}):
            await numbers.wait(2)
    assert (letters.keys, numbers.keys) == (["a"], ["1", "2"])


@pytest.mark.parametrize("topic", ["runs:a b/ü", "a*", "[x]", "{y}", "a:b", "%", "?"])
async def test_a_topic_may_be_called_anything(url: str, topic: str) -> None:
    done, other = Done(), Done()
    async with queue_at(url) as backend, working(backend, {topic: done, "ab": other}):
        await backend.queue.submit(Job(topic=topic, key="*"))
        await done.wait(1)
    assert (done.keys, other.keys) == (["*"], [])


@pytest.mark.slow
async def test_two_workers_do_each_job_once(url: str) -> None:
    done = Done()
    async with queue_at(url) as backend, working(backend, {"letters": done}), working(backend, {"letters": done}):
        for number in range(50):
            await backend.queue.submit(Job(topic="letters", key=str(number)))
        await done.wait(50)
    assert Counter(done.keys) == Counter(map(str, range(50)))


async def test_what_waits_or_is_being_done_is_not_added_again_and_what_is_done_is(url: str) -> None:
    begun, go_on, done = anyio.Event(), anyio.Event(), Done()

    async def work(job: Job) -> None:
        begun.set()
        await go_on.wait()
        await done(job)

    job = Job(topic="letters", key="a")
    async with queue_at(url) as backend:
        waits = [await backend.queue.submit(job), await backend.queue.submit(job)]
        async with working(backend, {"letters": work}):
            await begun.wait()
            being_done = await backend.queue.submit(job)
            go_on.set()
            await done.wait(1)
            while not await backend.queue.submit(job):  # its end comes after it
                await anyio.sleep(0)
            await done.wait(2)
    assert (waits, being_done, done.keys) == ([True, False], False, ["a", "a"])


@pytest.mark.slow
async def test_a_job_that_failed_is_done_again_after_a_while_and_takes_no_slot_meanwhile(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    done = Done()

    async def work(job: Job) -> None:
        await done(job)
        if job.key == "bad" and job.delivery < 3:
            raise ValueError("not yet")

    async with queue_at(url) as backend, working(backend, {"letters": work}):
        for key in ("bad", "good"):
            await backend.queue.submit(Job(topic="letters", key=key))
        await done.wait(4)
    assert done.keys == ["bad", "good", "bad", "bad"]
    assert [job.delivery for job in done.jobs if job.key == "bad"] == [1, 2, 3]
    told = [record.getMessage() for record in caplog.records]
    assert told == [f"job 'bad' of 'letters' failed, again in {seconds} s: not yet" for seconds in (1, 2)]


async def test_a_job_that_has_to_wait_takes_no_slot_and_does_not_count_as_failed(url: str) -> None:
    done = Done()

    async def work(job: Job) -> None:
        await done(job)
        if job.key == "early" and done.keys.count("early") < 2:
            raise Reschedule(0.1)

    async with queue_at(url) as backend, working(backend, {"letters": work}):
        for key in ("early", "other"):
            await backend.queue.submit(Job(topic="letters", key=key))
        await done.wait(3)
    assert done.keys == ["early", "other", "early"]
    assert {job.delivery for job in done.jobs} == {1}


async def test_a_job_that_is_put_off_for_long_is_done_now_when_it_is_submitted_again(url: str) -> None:
    done, seen = Done(), anyio.Event()

    async def work(job: Job) -> None:
        await done(job)
        if len(done.jobs) == 1:
            raise Reschedule(3600)  # as two seconds are with a clock that is an hour ahead
        await seen.wait()

    async with queue_at(url) as backend, working(backend, {"letters": work}):
        job = Job(topic="letters", key="a", payload={"to": "b"})
        assert await backend.queue.submit(job)
        await done.wait(1)
        while len(done.jobs) < 2:
            assert not await backend.queue.submit(job)
            await anyio.sleep(0.05)
        seen.set()
        while not await backend.queue.submit(job):
            await anyio.sleep(0.05)
        await done.wait(3)
    assert [(job.key, job.payload, job.delivery) for job in done.jobs] == [("a", {"to": "b"}, 1)] * 3


async def test_jobs_after_one_that_the_store_refused_say_that_there_was_an_outage(url: str) -> None:
    done = Done()

    async def work(job: Job) -> None:
        await done(job)
        if len(done.jobs) == 2:
            raise StoreError("read-only", collection="runs")

    async with queue_at(url) as backend, working(backend, {"letters": work}):
        for count in (1, 2):
            await backend.queue.submit(Job(topic="letters", key=f"{count}"))
            await done.wait(count)
        await done.wait(3)
        await backend.queue.submit(Job(topic="letters", key="4"))
        await done.wait(4)
    assert [(job.key, job.after_outage) for job in done.jobs] == [("1", False), ("2", False), ("2", True), ("4", True)]


async def test_a_worker_that_is_shut_down_hands_its_jobs_to_others_at_once(url: str) -> None:
    begun, left, done = anyio.Event(), anyio.Event(), Done()

    async def stuck(job: Job) -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            left.set()

    async with queue_at(url, redelivery_seconds=3600) as backend:  # nothing comes by itself
        with anyio.fail_after(25):  # sooner than a worker is given up
            async with working(backend, {"letters": stuck}):
                await backend.queue.submit(Job(topic="letters", key="a"))
                await begun.wait()
        assert left.is_set()
        async with working(backend, {"letters": done}):
            await done.wait(1)
    assert [(job.key, job.delivery, job.deaths) for job in done.jobs] == [("a", 1, 0)]


async def test_backends_in_memory_share_nothing() -> None:
    done = Done()
    async with queue_at("memory://") as one, queue_at("memory://") as other:
        await one.queue.submit(Job(topic="letters", key="a"))
        async with working(other, {"letters": done}):
            assert await other.queue.submit(Job(topic="letters", key="a"))
            await done.wait(1)
        async with working(one, {"letters": done}):
            await done.wait(2)
    assert done.keys == ["a", "a"]


async def test_one_backend_is_used_in_many_event_loops_at_the_same_time(redis_url: str) -> None:
    backend = queue_at(redis_url)
    all_in = threading.Barrier(3, timeout=60)

    async def submit(number: int) -> None:
        async with backend:
            await backend.queue.submit(Job(topic="letters", key=f"{number} before"))
            await anyio.to_thread.run_sync(all_in.wait)
            if number:  # one leaves before the others
                await anyio.sleep(0.05)
            await backend.queue.submit(Job(topic="letters", key=f"{number} after"))

    def in_a_loop_of_its_own(number: int) -> None:
        anyio.run(submit, number)

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(anyio.to_thread.run_sync, in_a_loop_of_its_own, number)
    done = Done()
    async with backend, working(backend, {"letters": done}):
        await done.wait(6)
    assert sorted(done.keys) == sorted(f"{number} {when}" for number in range(3) for when in ("before", "after"))


async def test_installations_of_two_names_share_a_redis_and_no_jobs(redis_url: str) -> None:
    done, other = Done(), Done()
    async with (
        queue_at(redis_url, name="one") as one,
        queue_at(f"{redis_url}?name=two") as two,
        working(one, {"letters": done}),
        working(two, {"letters": other}),
    ):
        await two.queue.submit(Job(topic="letters", key="a"))
        await other.wait(1)
    assert (done.keys, other.keys) == ([], ["a"])


@pytest.mark.slow
async def test_a_job_goes_on_while_redis_is_lost_and_so_does_the_worker_afterwards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on, done = anyio.Event(), anyio.Event(), Done()
    times = 0

    async def work(job: Job) -> None:
        nonlocal times
        if job.key == "long":
            times += 1
            begun.set()
            await go_on.wait()
        await done(job)

    async def told(text: str) -> None:
        while text not in caplog.text:
            await anyio.sleep(0.05)

    long = Job(topic="letters", key="long")
    with RedisServer(tmp_path, durable=True) as server:
        backend = queue_at(server.url, redelivery_seconds=1)
        async with backend, working(backend, {"letters": work}, concurrency=2):
            await backend.queue.submit(long)
            await begun.wait()
            server.kill()
            with pytest.raises(StoreError, match=r"cannot be used|does not answer"):
                await backend.queue.submit(Job(topic="letters", key="never"))
            await told("the queue is lost; trying again")
            server.start()
            await told("the queue is back")
            for key in "abc":
                await backend.queue.submit(Job(topic="letters", key=key))
            await done.wait(3)
            assert not await backend.queue.submit(long)
            assert times == 1
            go_on.set()
            while not await backend.queue.submit(long):  # it was delivered again, to what did it already
                await anyio.sleep(0.05)
            assert times == 1
            await done.wait(5)
    assert done.keys == ["a", "b", "c", "long", "long"]
    assert done.jobs[0].after_outage


@pytest.mark.slow
async def test_a_worker_waits_for_a_queue_that_starts_later(tmp_path: Path) -> None:
    done = Done()
    server = RedisServer(tmp_path)
    server.port = free_port()
    queue = queue_at(server.url).queue
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(queue.work, {"letters": done})
            with pytest.raises(StoreError, match="cannot be used") as refused:  # who submits is not kept waiting
                await queue.submit(Job(topic="letters", key="a"))
            assert refused.value.is_temporary
            await anyio.to_thread.run_sync(server.start)
            await queue.submit(Job(topic="letters", key="a"))
            await done.wait(1)
            tasks.cancel_scope.cancel()
    finally:
        server.kill()
    assert done.keys == ["a"]


async def test_a_queue_that_cannot_be_reached_says_so_and_shows_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolweave.jobs._docket._REACH_SECONDS", 0.5)
    backend = queue_at("redis://someone:hunter2@127.0.0.1:1/0")
    with pytest.raises(StoreError, match=r"redis://127\.0\.0\.1:1/0") as told:
        await backend.queue.submit(Job(topic="letters", key="a"))
    with pytest.raises(StoreError) as also:
        await backend.queue.work({"letters": Done()})
    for text in (str(told.value), str(also.value), repr(backend), repr(backend.queue), backend.where):
        assert "hunter2" not in text
        assert "someone" not in text


@pytest.mark.parametrize("payload", [{"x": object()}, {"x": float("nan")}])
async def test_what_is_no_json_is_no_job(url: str, payload: dict[str, Any]) -> None:
    with pytest.raises(StoreError, match="the payload of job 'a' of 'letters' is not JSON"):
        await queue_at(url).queue.submit(Job(topic="letters", key="a", payload=payload))


@pytest.mark.slow
async def test_of_what_was_done_nothing_is_kept_not_even_what_made_it_fail(redis_url: str) -> None:
    done = Done()

    async def work(job: Job) -> None:
        await done(job)
        if job.delivery == 1:
            raise ValueError("a secret")

    async with queue_at(redis_url) as backend, working(backend, {"letters": work}):
        await backend.queue.submit(Job(topic="letters", key="the-job"))
        await done.wait(2)
    async with client_of(redis_url) as redis:
        keys: list[str] = [key.decode() async for key in redis.scan_iter()]
        kept = [key for key in keys if "the-job" in key or "result" in key]
        streams = [await redis.xlen(key) for key in keys if key.endswith(":stream")]
    assert (kept, streams) == ([], [0])
