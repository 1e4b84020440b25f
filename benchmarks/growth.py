"""A hub of many servers: what its start costs, at 50, 100 and 200 upstreams of 50 tools each, over HTTP.

Every measurement is a process of its own (`python -m benchmarks.growth CONTENDER COUNT URL`); the baseline lists the
tools of as many servers, one connection each, and keeps them.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.crew import ROOT, http_url
from benchmarks.measure import Figure, Sample, compare
from benchmarks.settings import Settings

__all__ = ["growth"]

COUNTS = (50, 100, 200)
TOOLS = 50
ROUNDS = 3


async def raw(count: int, url: str) -> int:
    """List the tools of every server; return how many there are."""
    from benchmarks.raw import RawHttp

    async def listed() -> int:
        client = RawHttp(url, modern=True)
        await client.start()
        return len(await client.list_tools())

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(listed()) for _ in range(count)]
    return sum(task.result() for task in tasks)


async def toolweave(count: int, url: str) -> int:
    """Open a hub; return how many tools it has."""
    from toolweave import connect_mcp_servers

    servers = {f"s{number}": {"type": "http", "url": url} for number in range(count)}
    async with connect_mcp_servers({"mcpServers": servers}, wait="all") as hub:
        return len(hub.snapshot())


CONTENDERS: dict[str, Callable[[int, str], Awaitable[int]]] = {"raw": raw, "toolweave": toolweave}


def sample(name: str, count: int, url: str) -> Sample:
    """Measure one fresh process; what it imports does not count."""
    command = [sys.executable, "-m", "benchmarks.growth", name, str(count), url]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return Sample(cpu=figures["cpu"], wall=figures["wall"])


def growth(settings: Settings) -> list[Figure]:
    """Measure each number of upstreams."""
    figures: list[Figure] = []
    with http_url("--era", "modern", "--tools", TOOLS) as url:
        for count in COUNTS[:1] if settings.quick else COUNTS:
            case = f"hub of {count} servers, {TOOLS} tools each"
            if settings.wants(case):
                samples = {name: [sample(name, count, url) for _ in range(ROUNDS)] for name in CONTENDERS}
                figures += compare("growth", case, samples)
    return figures


async def main() -> None:
    """Do one measurement and print it."""
    name, count, url = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    await CONTENDERS[name](1, url)
    cpu, wall = time.process_time(), time.perf_counter()
    tools = await CONTENDERS[name](count, url)
    if tools < count * TOOLS:
        raise RuntimeError(f"only {tools} tools of {count} servers")
    print(json.dumps({"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}))


if __name__ == "__main__":
    asyncio.run(main())
