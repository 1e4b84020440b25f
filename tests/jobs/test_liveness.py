"""Jobs of workers that died: taken over soon on the same machine and on another, and never from one that lives."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.jobs.places import client_of
from toolweave.jobs import Backend, Job
from toolweave.state import MemoryStore

pytestmark = pytest.mark.slow

STREAM, GROUP = "toolweave:letters:stream", "docket-workers"
WORKER = """
import anyio, sys
from toolweave.state import MemoryStore
from toolweave.jobs import Backend, Job

async def work(job):
    print(job.key, flush=True)
    await anyio.sleep_forever()

async def main():
    backend = Backend(sys.argv[1], store=MemoryStore(), redelivery_seconds=3600)
    await backend.queue.work({"letters": work})

anyio.run(main)
"""


@asynccontextmanager
async def at_work(url: str, done: list[Job]) -> AsyncGenerator[None, None]:
    """Do jobs of the topic `letters` meanwhile; what others hold comes by itself after an hour only."""
    started = anyio.Event()

    async def work(job: Job) -> None:
        done.append(job)

    backend = Backend(url, store=MemoryStore(), redelivery_seconds=3600)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: backend.queue.work({"letters": work}, started=started.set))
        await started.wait()
        yield
        tasks.cancel_scope.cancel()


async def held_by(url: str, redis: Any, worker: str) -> None:
    """Have a worker take a job and do nothing."""
    await Backend(url, store=MemoryStore()).queue.submit(Job(topic="letters", key="a"))
    await redis.xgroup_create(STREAM, GROUP, id="0-0")
    await redis.xreadgroup(GROUP, worker, {STREAM: ">"}, count=1)


async def looks(redis: Any) -> int:
    """Return how often workers have looked for dead ones."""
    commands = await redis.info("commandstats")
    return int(commands.get("cmdstat_xinfo|consumers", {}).get("calls", 0))


async def test_jobs_of_a_worker_that_was_killed_go_on_beside_it(redis_url: str) -> None:
    done: list[Job] = []
    await Backend(redis_url, store=MemoryStore()).queue.submit(Job(topic="letters", key="a"))
    with subprocess.Popen([sys.executable, "-c", WORKER, redis_url], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert await anyio.to_thread.run_sync(other.stdout.readline) == "a\n"
        async with at_work(redis_url, done):
            other.kill()
            other.wait()
            with anyio.fail_after(60):
                while not done:
                    await anyio.sleep(0.02)
    assert [(job.key, job.deaths) for job in done] == [("a", 1)]


async def test_jobs_of_a_worker_elsewhere_that_says_nothing_go_on(redis_url: str) -> None:
    done: list[Job] = []
    async with client_of(redis_url) as redis:
        await held_by(redis_url, redis, "elsewhere#0123456789ab#1#abcdef01")
        async with at_work(redis_url, done):
            with anyio.fail_after(60):
                while not done:
                    await anyio.sleep(0.02)
    assert [(job.key, job.deaths) for job in done] == [("a", 1)]


async def test_jobs_of_a_worker_elsewhere_that_says_that_it_lives_stay_there(redis_url: str) -> None:
    done: list[Job] = []
    worker = "elsewhere#0123456789ab#1#abcdef01"
    async with client_of(redis_url) as redis:
        await held_by(redis_url, redis, worker)
        await redis.set(f"toolweave:letters:alive:{worker}", b"", px=600_000)
        before = await looks(redis)
        async with at_work(redis_url, done):
            with anyio.fail_after(60):
                while await looks(redis) < before + 7:
                    await anyio.sleep(0.05)
                assert done == []
                await redis.delete(f"toolweave:letters:alive:{worker}")
                while not done:
                    await anyio.sleep(0.02)
    assert [job.key for job in done] == ["a"]


async def test_two_workers_that_see_the_same_death_do_its_job_once(redis_url: str) -> None:
    done: list[Job] = []
    async with client_of(redis_url) as redis:
        await held_by(redis_url, redis, "elsewhere#0123456789ab#1#abcdef01")
        async with at_work(redis_url, done), at_work(redis_url, done), at_work(redis_url, done):
            with anyio.fail_after(60):
                while not done:
                    await anyio.sleep(0.02)
                while await redis.xlen(STREAM):
                    await anyio.sleep(0.02)
    assert [job.key for job in done] == ["a"]


async def test_a_worker_that_is_full_begins_the_next_job_when_one_is_done(redis_url: str) -> None:
    done = 0
    all_done = anyio.Event()

    async def work(job: Job) -> None:
        nonlocal done
        done += 1
        if done == 400:
            all_done.set()

    backend = Backend(redis_url, store=MemoryStore())
    async with backend, anyio.create_task_group() as tasks:
        for number in range(400):
            await backend.queue.submit(Job(topic="letters", key=str(number)))
        with anyio.fail_after(60):  # with docket's sleep of a quarter of a second for each it takes 100 at least
            tasks.start_soon(lambda: backend.queue.work({"letters": work}, concurrency=1))
            await all_done.wait()
        tasks.cancel_scope.cancel()
