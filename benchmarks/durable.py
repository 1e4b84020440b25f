"""Durable runs: what a worker spends on an empty one, beside an empty job of docket alone, on a Redis of its own.

Jobs are submitted before; what is measured is the worker that does them. Each contender is a process of its own in
every round (`python -m benchmarks.durable CONTENDER URL`), which also counts the commands that its Redis was given.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from benchmarks.measure import Figure, Sample, compare
from benchmarks.settings import Settings

__all__ = ["durable"]

CASE = "empty run"
JOBS = 300
WARM_UP = 20
PROCESS_SECONDS = 300.0
CONCURRENCY = 10


def durable(settings: Settings) -> list[Figure]:
    """Measure an empty durable run in units of docket's empty job."""
    if not settings.wants(CASE):
        return []
    if shutil.which("redis-server") is None:
        sys.stderr.write("durable: no redis-server on PATH, left out\n")
        return []
    samples: dict[str, list[Sample]] = {name: [] for name in CONTENDERS}
    commands: dict[str, float] = {}
    with redis_server() as port:
        for number in range(settings.rounds):
            for place, name in enumerate(CONTENDERS):
                url = f"redis://127.0.0.1:{port}/{number * len(CONTENDERS) + place}"
                command = [sys.executable, "-m", "benchmarks.durable", name, url]
                done = subprocess.run(command, capture_output=True, check=True, timeout=PROCESS_SECONDS)
                said: dict[str, float] = json.loads(done.stdout)
                samples[name].append(Sample(said["cpu"], said["wall"]))
                commands[name] = said["commands"]
    told = ", ".join(f"{name} {count:.0f}" for name, count in commands.items())
    sys.stderr.write(f"durable, {CASE}: Redis commands, from submitting to the end: {told}\n")
    return compare("durable", CASE, samples, baseline="docket")


@contextmanager
def redis_server() -> Generator[int, None, None]:
    """Start an empty server that keeps nothing on the disk; yield its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        settings = ["--save", "", "--appendonly", "no", "--databases", "256", "--dir", folder, "--bind", "127.0.0.1"]
        command = ["redis-server", "--port", str(port), *settings]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                if not any("Ready to accept connections" in line for line in process.stdout):
                    raise RuntimeError("redis-server did not start")
                yield port
            finally:
                process.kill()


async def docket_alone(url: str, measure: Callable[[Callable[[int], Awaitable[None]]], Awaitable[None]]) -> None:
    """Do jobs with docket."""
    from docket import Docket, Worker

    left = 0
    ended = asyncio.Event()

    async def job(_about: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            ended.set()

    async with Docket(name="bench", url=url, execution_ttl=timedelta(0)) as docket:
        docket.register(job)

        async def submit(count: int) -> None:
            nonlocal left
            left += count
            for _ in range(count):
                await docket.add(job)("{}")

        # its own default would have it sleep for a quarter of a second whenever it is full
        quick = timedelta(milliseconds=20)

        async def work(count: int) -> None:
            ended.clear()
            if count:
                await submit(count)
                return
            async with Worker(docket, concurrency=CONCURRENCY, minimum_check_interval=quick) as worker:
                working = asyncio.ensure_future(worker.run_forever())
                await ended.wait()
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)

        await measure(work)


async def ours(url: str, measure: Callable[[Callable[[int], Awaitable[None]]], Awaitable[None]]) -> None:
    """Do submitted runs of an agent whose model answers with a text."""
    from toolweave import Agent
    from toolweave.agent import SubmittedRun, work_runs
    from toolweave.jobs import Backend
    from toolweave.models import ScriptedModel

    backend = Backend(url)
    agent = Agent(ScriptedModel(lambda _request: "done"), name="bench", backend=backend)
    last: list[SubmittedRun] = []

    async def work(count: int) -> None:
        if count:
            runs = [await agent.submit("go") for _ in range(count)]
            last[:] = runs[-2 * CONCURRENCY :]  # those before them have begun before, and ended by then
            return
        working = asyncio.ensure_future(work_runs([agent], backend, concurrency=CONCURRENCY))
        for run in last:
            await run
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    async with backend:
        await measure(work)


CONTENDERS: dict[str, Callable[..., Awaitable[None]]] = {"docket": docket_alone, "toolweave": ours}


async def main(name: str, url: str) -> None:
    """Measure one contender and print what one job cost: `work(n)` submits jobs, `work(0)` does them."""
    from redis.asyncio import Redis

    logging.disable()
    kind: Any = Redis
    client: Any = kind.from_url(url)

    async def commands() -> int:
        return sum(one["calls"] for one in (await client.info("commandstats")).values())

    async def measure(work: Callable[[int], Awaitable[None]]) -> None:
        await work(WARM_UP)
        await work(0)
        before = await commands()
        await work(JOBS)
        cpu, wall = time.process_time(), time.perf_counter()
        await work(0)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        count = await commands() - before
        print(json.dumps({"cpu": cpu / JOBS, "wall": wall / JOBS, "commands": count / JOBS}), flush=True)

    await CONTENDERS[name](url, measure)
    await client.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
