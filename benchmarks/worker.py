"""One client in one process: takes jobs as JSON lines on standard input, answers each with a line of figures.

`python -m benchmarks.worker '{"client": ..., "url" or "command": ..., "modern": ...}'`. The job's loop is the same for
every client, so what it costs is in every figure alike.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import logging
import os
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

from benchmarks.clients import CLIENTS, Open, Target

__all__: list[str] = []

Json = dict[str, Any]
TICK_SECONDS = 0.001
WARM_UP_SECONDS = 0.05
TURN_SECONDS = 0.1


async def call(client: Open, job: Json) -> Json:
    """Make calls from so many callers at once, and time each of them."""
    tool, arguments = job["tool"], job["arguments"]
    return await turn(lambda: client.call(tool, arguments), callers=int(job["callers"]))


async def turn(operation: Callable[[], Awaitable[object]], *, callers: int = 1) -> Json:
    """Do an operation over and over: first untimed, then timed; return what one of the timed ones takes.

    Between its turns a client sleeps while others work, and wakes up to cold caches and a slow processor. A turn that
    counted that would measure it, and most for those whose operation is the shortest.
    """
    await spend(operation, callers, WARM_UP_SECONDS)
    cpu, wall = time.process_time(), time.perf_counter()
    user = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    times = await spend(operation, callers, TURN_SECONDS)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    user = resource.getrusage(resource.RUSAGE_SELF).ru_utime - user
    times.sort()
    return {
        "cpu": cpu / len(times),
        "user": user / len(times),
        "wall": wall / len(times),
        "p50": statistics.median(times),
        "p99": times[min(len(times) - 1, len(times) * 99 // 100)],
    }


async def spend(operation: Callable[[], Awaitable[object]], callers: int, seconds: float) -> list[float]:
    """Begin operations until the time is over, at least one for each caller; return what each took."""
    times: list[float] = []
    clock = time.perf_counter
    end = clock() + seconds

    async def caller() -> None:
        while True:
            began = clock()
            await operation()
            ended = clock()
            times.append(ended - began)
            if ended >= end:
                return

    if callers == 1:
        await caller()
    else:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(callers):
                tasks.create_task(caller())
    return times


async def watched_call(client: Open, job: Json) -> Json:
    """Make one call while another task ticks; add the longest time in which it could not."""
    worst = 0.0

    async def tick() -> None:
        nonlocal worst
        while True:
            before = time.perf_counter()
            await asyncio.sleep(TICK_SECONDS)
            worst = max(worst, time.perf_counter() - before - TICK_SECONDS)

    async with asyncio.TaskGroup() as tasks:
        ticking = tasks.create_task(tick())
        cpu, wall = time.process_time(), time.perf_counter()
        await client.call(job["tool"], job["arguments"])
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        ticking.cancel()
    return {"cpu": cpu, "wall": wall, "stall": worst}


async def list_tools(client: Open, job: Json) -> Json:
    """List everything again and again."""

    async def list_all() -> None:
        count = await client.list_all()
        if count != job["expected"]:
            raise RuntimeError(f"{count} tools instead of {job['expected']}")

    figures = await turn(list_all)
    return {"cpu": figures["cpu"], "wall": figures["wall"]}


async def memory(client: Open, job: Json) -> Json:
    """Return the resident memory, with the CPU since the start of the process as its only time."""
    used = time.process_time()
    return {"cpu": used, "wall": used, "memory": resident()}


JOBS: dict[str, Callable[[Open, Json], Awaitable[Json]]] = {
    "call": call,
    "watched_call": watched_call,
    "list": list_tools,
    "memory": memory,
}


def resident() -> int | None:
    """Return the resident bytes of this process, or None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


async def serve(target: Target, name: str, answers: int) -> None:
    """Connect, say so, and do jobs until standard input ends. Nothing else runs while a job is awaited."""
    async with AsyncExitStack() as stack:
        client = await CLIENTS[name].opener(stack, target)
        write(answers, {"ready": True})
        for line in sys.stdin:
            job: Json = json.loads(line)
            gc.collect()
            write(answers, await JOBS[job["do"]](client, job))


def write(fd: int, value: Json) -> None:
    """Write one line."""
    os.write(fd, json.dumps(value).encode() + b"\n")


def main() -> None:
    """Set up the event loop of the client and serve."""
    options: Json = json.loads(sys.argv[1])
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints must not be taken for an answer
    os.set_inheritable(answers, False)
    logging.disable(logging.WARNING)
    name = options["client"]
    target = Target(modern=options["modern"], command=tuple(options.get("command", ())), url=options.get("url", ""))
    try:
        importlib.import_module(CLIENTS[name].module)
        factory = importlib.import_module("uvloop").new_event_loop if CLIENTS[name].uvloop else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(serve(target, name, answers))
    except Exception as exc:  # whatever is wrong with a contender costs its own rows only
        cause: BaseException = exc
        while isinstance(cause, BaseExceptionGroup):
            cause = cast("BaseExceptionGroup[BaseException]", cause).exceptions[0]
        write(answers, {"error": f"{type(cause).__name__}: {str(cause)[:300]}"})
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
