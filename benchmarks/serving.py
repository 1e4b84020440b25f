"""A served tool: what one call costs the server's process, and how long its client waits.

The client is the raw one for all (`raw.py`), in this process; the server's CPU is read from the kernel.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from benchmarks.clients import CLIENTS
from benchmarks.crew import ROOT
from benchmarks.measure import Figure, Sample, compare
from benchmarks.peers import available, python_of
from benchmarks.raw import RawHttp, RawStdio
from benchmarks.served import LISTED, SERVERS
from benchmarks.settings import Settings

__all__ = ["serving"]

WARM_UP_SECONDS = 0.15
TURN_SECONDS = 0.5
START_SECONDS = 30.0


class Served:
    """One contender's server and a client of it."""

    def __init__(self, client: RawHttp | RawStdio, pid: int) -> None:
        self.client = client
        self.pid = pid

    def cpu(self) -> float:
        """Return the CPU seconds of the server so far, all threads together."""
        tasks = Path(f"/proc/{self.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9

    async def turn(self, callers: int) -> Sample:
        """Call for a while, first untimed, then timed."""
        await self.spend(callers, WARM_UP_SECONDS)
        cpu, begun = self.cpu(), time.perf_counter()
        waits = await self.spend(callers, TURN_SECONDS)
        wall = time.perf_counter() - begun
        waits.sort()
        return Sample(
            cpu=(self.cpu() - cpu) / len(waits),
            wall=wall / len(waits),
            p50=waits[len(waits) // 2],
            p99=waits[len(waits) * 99 // 100],
        )

    async def spend(self, callers: int, seconds: float) -> list[float]:
        """Call until the time is over; return how long each call took."""
        waits: list[float] = []
        end = time.perf_counter() + seconds

        async def call() -> None:
            while (begun := time.perf_counter()) < end:
                await self.exchange()
                waits.append(time.perf_counter() - begun)

        async with asyncio.TaskGroup() as group:
            for _ in range(callers):
                group.create_task(call())
        return waits

    async def exchange(self) -> None:
        """Call the tool once."""
        result = await self.client.call_tool("payload", {"size": 100})
        if result.content[0].text != "x" * 100:
            raise ValueError("a wrong answer")


class Listing(Served):
    """A server with a thousand tools, of which each exchange lists one page."""

    async def exchange(self) -> None:
        """List the first page."""
        await self.client.request("tools/list", {})


@asynccontextmanager
async def started(name: str, transport: str) -> AsyncGenerator[Served, None]:
    """Start a contender's server, and end it."""
    python = python_of(CLIENTS["fastmcp"]) if name == "fastmcp" else sys.executable
    command = [python, "-m", "benchmarks.served", name]
    lists = transport == "http list"
    if transport.startswith("stdio"):
        client = RawStdio(modern=transport == "stdio modern")
        await asyncio.wait_for(client.start([*command, "stdio"]), START_SECONDS)
        try:
            yield Served(client, client.transport.get_pid())
        finally:
            await asyncio.wait_for(client.close(), START_SECONDS)
        return
    server = await asyncio.create_subprocess_exec(
        *command,
        "http",
        *(["many"] if lists else []),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert server.stdout is not None
        port = int(await asyncio.wait_for(server.stdout.readline(), START_SECONDS))
        http = RawHttp(f"http://127.0.0.1:{port}/mcp", modern=transport != "http legacy")
        await asyncio.wait_for(http.start(), START_SECONDS)
        yield (Listing if lists else Served)(http, server.pid)
        await http.close()
    finally:
        with suppress(ProcessLookupError):
            server.send_signal(signal.SIGKILL)
        await server.wait()


async def measure(transport: str, callers: int, rounds: int, names: list[str]) -> dict[str, list[Sample]]:
    """Let the contenders serve in turn."""
    samples: dict[str, list[Sample]] = {name: [] for name in names}
    async with AsyncExitStack() as stack:
        servers = {name: await stack.enter_async_context(started(name, transport)) for name in names}
        for _ in range(rounds):
            for name, server in servers.items():
                samples[name].append(await server.turn(callers))
    return samples


def serving(settings: Settings) -> list[Figure]:
    """Measure every contender that is installed."""
    names = [name for name in SERVERS if name != "fastmcp" or available(CLIENTS["fastmcp"])]
    if settings.clients:
        names = [name for name in names if name.partition(",")[0] in ("raw", *settings.clients)]
    figures: list[Figure] = []
    for transport in ("stdio", "stdio modern", "http", "http legacy", "http list"):
        if transport in ("stdio", "http") and transport not in settings.transports:
            continue
        for callers in (1, 16):
            what = "a page of 1,000 tools" if transport == "http list" else "100 B"
            case = (
                f"served over {transport.removesuffix(' list')}, {what}, {callers} caller{'s' if callers > 1 else ''}"
            )
            if settings.wants(case):
                able = names if transport == "http" else [name for name in names if "," not in name]
                if transport == "http list":
                    able = [name for name in able if name in LISTED]
                samples = asyncio.run(measure(transport, callers, min(settings.rounds, 7), able))
                figures += compare("serving", case, samples)
    return figures
