"""What who can write to the Redis of a queue may do to its workers: no code of theirs runs, and the rest goes on."""

from __future__ import annotations

import os
import pickle
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.jobs.places import client_of
from toolweave.jobs import Backend, Job
from toolweave.state import MemoryStore


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._folder),)


@asynccontextmanager
async def at_work(url: str, done: list[Job]) -> AsyncGenerator[Backend, None]:
    """Do jobs of the topic `letters` meanwhile."""
    started = anyio.Event()

    async def work(job: Job) -> None:
        done.append(job)

    backend = Backend(url, store=MemoryStore())
    with anyio.fail_after(60):
        async with backend, anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: backend.queue.work({"letters": work}, started=started.set))
            await started.wait()
            yield backend
            tasks.cancel_scope.cancel()


async def one_more(backend: Backend, done: list[Job]) -> None:
    """Have an honest job done after all that stands in the queue."""
    await backend.queue.submit(Job(topic="letters", key="honest", payload={"a": 1}))
    while not any(job.key == "honest" for job in done):
        await anyio.sleep(0.01)


FIELDS: dict[str, Any] = {
    "key": "evil",
    "when": "2026-01-01T00:00:00+00:00",
    "function": "job",
    "args": "{}",
    "kwargs": pickle.dumps({}),
    "attempt": "1",
    "generation": "0",
}


@pytest.mark.parametrize("field", ["args", "kwargs"])
@pytest.mark.parametrize("function", ["job", "trace", "os.system"])
async def test_a_pickle_that_is_written_into_the_queue_is_never_unpickled(
    redis_url: str, tmp_path: Path, field: str, function: str
) -> None:
    done: list[Job] = []
    async with at_work(redis_url, done) as backend, client_of(redis_url) as redis:
        payload = pickle.dumps((Evil(tmp_path / "pwned"),))
        await redis.xadd("toolweave:letters:stream", FIELDS | {field: payload, "function": function})
        await one_more(backend, done)
    assert not (tmp_path / "pwned").exists()
    assert [job for job in done if job.payload] == [Job(topic="letters", key="honest", payload={"a": 1})]


async def test_a_pickle_among_the_strikes_of_a_queue_is_never_unpickled(redis_url: str, tmp_path: Path) -> None:
    done: list[Job] = []
    async with client_of(redis_url) as redis:
        strike = {"direction": "strike", "operator": "==", "value": pickle.dumps(Evil(tmp_path / "pwned"))}
        await redis.xadd("toolweave:letters:strikes", {**strike, "function": "job", "parameter": "payload"})
        async with at_work(redis_url, done) as backend:
            await redis.xadd("toolweave:letters:strikes", {**strike, "function": "job", "parameter": "payload"})
            await one_more(backend, done)
    assert not (tmp_path / "pwned").exists()


async def test_a_pickle_in_a_job_that_waits_for_its_time_is_never_unpickled(redis_url: str, tmp_path: Path) -> None:
    done: list[Job] = []
    async with at_work(redis_url, done) as backend, client_of(redis_url) as redis:
        payload = pickle.dumps((Evil(tmp_path / "pwned"),))
        await redis.hset("toolweave:letters:evil", mapping=FIELDS | {"args": payload})
        await redis.zadd("toolweave:letters:queue", {"evil": 0})
        while await redis.zcard("toolweave:letters:queue"):
            await anyio.sleep(0.01)
        await one_more(backend, done)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"when": "tomorrow"},
        {"attempt": "many"},
        {"attempt": "-1"},
        {"generation": "x"},
        {"key": b"\xff"},
        {"args": b"\xff"},
        {"function": "fail"},
        {"args": "no JSON"},
        {"args": "[1]"},
    ],
)
async def test_a_message_that_is_no_job_is_dropped_and_the_worker_goes_on(
    redis_url: str, change: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    done: list[Job] = []
    async with at_work(redis_url, done) as backend, client_of(redis_url) as redis:
        await redis.xadd("toolweave:letters:stream", FIELDS | change)
        await one_more(backend, done)
        while await redis.xlen("toolweave:letters:stream"):
            await anyio.sleep(0.01)
    assert [job.key for job in done] == ["honest"]
    assert "was dropped" in caplog.text
