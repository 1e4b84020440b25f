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


async def call(client: Open, job: Json) -> Json:
    """Make calls from so many callers at once, and time each of them."""
    times: list[float] = []
    tool, arguments, clock = job["tool"], job["arguments"], time.perf_counter

    async def caller(operations: int) -> None:
        for _ in range(operations):
            began = clock()
            await client.call(tool, arguments)
            times.append(clock() - began)

    callers = int(job["callers"])
    each = max(1, int(job["operations"]) // callers)
    cpu, wall = time.process_time(), clock()
    user = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    if callers == 1:
        await caller(each)
    else:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(callers):
                tasks.create_task(caller(each))
    cpu, wall = time.process_time() - cpu, clock() - wall
    user = resource.getrusage(resource.RUSAGE_SELF).ru_utime - user
    times.sort()
    return {
        "cpu": cpu / len(times),
        "user": user / len(times),
        "wall": wall / len(times),
        "p50": statistics.median(times),
        "p99": times[min(len(times) - 1, len(times) * 99 // 100)],
    }


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
        figures = await call(client, {"callers": 1, "operations": 1, **job})
        ticking.cancel()
    return {**figures, "stall": worst}


async def list_tools(client: Open, job: Json) -> Json:
    """List everything again."""
    cpu, wall = time.process_time(), time.perf_counter()
    count = await client.list_all()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    if count != job["expected"]:
        raise RuntimeError(f"{count} tools instead of {job['expected']}")
    return {"cpu": cpu, "wall": wall}


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
