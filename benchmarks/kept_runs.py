"""Runs that are kept: how long it takes to look at them, in memory, in a SQLite file and in Redis.

`python -m benchmarks.kept_runs [--runs 100000] [--place memory|sqlite|redis]` fills an empty store with runs of the
last 30 days, written as an agent writes them, and prints the milliseconds of each look as JSON: the first one, which
also counts what was never counted, and the median of the following ones.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.crew import ROOT
from benchmarks.durable import redis_server
from toolweave.agent import RunRecord, RunStatuses
from toolweave.agent._stored.records import JOURNAL, STARTS, record_changes
from toolweave.agent._stored.run_index import start_entries
from toolweave.compose import UserData
from toolweave.models import Usage
from toolweave.state import Change, MemoryStore, Put, RedisStore, SqliteStore, Store

KEEP = 30 * 86_400.0
WAITING, LEFT, USERS = 200, 100, 1_000
ROUNDS = 5
BATCH = 50


def runs(count: int, now: float) -> Iterator[RunRecord]:
    """Yield the records of runs of the last 30 days: some wait, some were left by their processes."""
    chance = random.Random(1)
    for number in range(count):
        at = now - chance.random() * KEEP * 0.99
        status: Any = "completed" if number % 20 else "failed"
        if number < WAITING:
            status = "waiting"
        elif number < WAITING + LEFT:
            status = "running"
        yield RunRecord(
            run_id=f"{chance.getrandbits(128):032x}",
            agent=f"agent-{number % 5}",
            status=status,
            session=f"user-{number % USERS}/chat",
            prompt="Where is my order?",
            created_at=at,
            changed_at=at + 4,
            attempts=1,
            text="Your order is on its way.",
            steps=2,
            usage=Usage(input_tokens=1_200, output_tokens=80),
        )


def changes_of(record: RunRecord, now: float) -> list[Change]:
    """Return the documents of a run with two turns and a call."""
    ttl = record.changed_at + KEEP - now
    record = replace(record, revision=0)
    documents: list[Change] = [*record_changes(record, ttl=ttl, at=now), *start_entries(record, ttl)]
    message = {"role": "user", "parts": [{"type": "text", "text": record.prompt}]}
    start = {"form": 1, "shared": 0, "messages": [message], "sent": 1}
    documents.append(Put(collection=STARTS, key=record.run_id, value=start, ttl=ttl))
    for entry in ("000001/turn", "000001/call/c1", "000002/turn"):
        value = {"name": "look_up", "text": record.text * 10}
        documents.append(Put(collection=JOURNAL, key=f"{record.run_id}/{entry}", value=value, ttl=ttl))
    return documents


async def fill(store: Store, count: int) -> None:
    """Write runs into a store."""
    now = time.time()
    batch: list[Change] = []
    totals: dict[tuple[str, str], Change] = {}
    for number, record in enumerate(runs(count, now), 1):
        for change in changes_of(record, now):
            # Runs of one hour share a document.
            totals[change.collection, change.key] = change
        if number % BATCH == 0 or number == count:
            batch = list(totals.values())
            totals.clear()
            assert await store.write(batch) is not None


async def looked(store: Store) -> dict[str, list[float]]:
    """Return the milliseconds of each look: the first, and the median of the others."""
    statuses = RunStatuses(store)
    # whose runs have all ended
    users = itertools.count(WAITING + LEFT)

    async def delete_session(user: int) -> None:
        assert await statuses.delete_session(f"agent-{user % 5}", f"user-{user}/chat")

    async def erase_user(user: int) -> None:
        assert (await UserData(store, f"user-{user}").erase()).runs

    run_ids = iter([one.run_id for one in await statuses.recent() if one.status == "completed"])
    looks: dict[str, Callable[[], Awaitable[object]]] = {
        "recent": statuses.recent,
        "recent of an agent": lambda: statuses.recent(agent="agent-3"),
        "recent of a session": lambda: statuses.recent(session="user-7/chat"),
        "waiting": statuses.waiting_runs,
        "stats": statuses.stats,
        "interrupted": statuses.interrupted,
        "active": statuses.active,
        "find": lambda: statuses.find("00"),
        "data of a user": UserData(store, "user-7").find,
        "delete a run": lambda: statuses.delete(next(run_ids)),
        "delete a session": lambda: delete_session(next(users)),
        "erase a user": lambda: erase_user(next(users)),
    }
    figures: dict[str, list[float]] = {}
    for name, look in looks.items():
        took: list[float] = []
        for _ in range(ROUNDS + 1):
            began = time.perf_counter()
            await look()
            took.append((time.perf_counter() - began) * 1000)
        figures[name] = [round(took[0], 1), round(statistics.median(took[1:]), 1)]
    return figures


@asynccontextmanager
async def opened(place: str) -> AsyncGenerator[tuple[Store, str | None]]:
    """Open an empty store; yield it with its place for the command, None in memory."""
    if place == "memory":
        yield MemoryStore(max_documents=10**8, max_bytes=10**11), None
    elif place == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "runs.db"
            async with SqliteStore(path) as store:
                yield store, str(path)
    else:
        with redis_server() as port:
            url = f"redis://127.0.0.1:{port}/0"
            async with RedisStore(url) as store:
                yield store, url


async def main(place: str, count: int) -> None:
    """Measure one place and print the figures."""
    async with opened(place) as (store, named):
        await RunStatuses(store).recent()  # as a worker does when it starts
        began = time.perf_counter()
        await fill(store, count)
        figures: dict[str, Any] = {"filled_s": round(time.perf_counter() - began, 1), **await looked(store)}
        if named is not None:
            figures["toolweave runs list --status waiting"] = command(["--status", "waiting"], named)
            figures["toolweave --version"] = command(None, named)
        sys.stdout.write(json.dumps({place: {"runs": count, **figures}}) + "\n")


def command(arguments: Sequence[str] | None, store: str) -> float:
    """Return the milliseconds of the command, the start of Python included."""
    words = ["--version"] if arguments is None else ["runs", "list", "--json", "--store", store, *arguments]
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "toolweave", *words], cwd=ROOT, check=True, capture_output=True, timeout=300)
    return round((time.perf_counter() - began) * 1000, 1)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=100_000)
    options.add_argument("--place", choices=("memory", "sqlite", "redis"), default="memory")
    given = options.parse_args()
    asyncio.run(main(given.place, given.runs))
