"""A served tool: what one call costs the server's process, and how long its client waits.

The client is the raw one for all (`raw.py`), in this process; the server's CPU is read from the kernel.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.clients import CLIENTS
from benchmarks.crew import ROOT
from benchmarks.measure import Figure, Sample, callers_named, compare
from benchmarks.peers import available, python_of
from benchmarks.raw import RawHttp, RawStdio
from benchmarks.served import LISTED, SERVERS, TOKEN
from benchmarks.settings import Settings

__all__ = ["KINDS", "Served", "ask_as", "serving"]

KINDS = ("", "a `_meta` key", "a progress token", "a bearer token")
"""What the calls of ordinary clients have beside name and arguments."""
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
    """A server with a thousand tools, which each exchange lists."""

    async def exchange(self) -> None:
        """List the tools, on one page."""
        await self.client.request("tools/list", {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is served, to how many callers at once.

    Attributes:
        transport: `stdio`, `stdio modern`, `http` (modern), or `http legacy`.
        callers: How many call at once.
        kind: One of `KINDS`.
        lists: Whether many tools are listed, in place of a call.
    """

    transport: str
    callers: int
    kind: str = ""
    lists: bool = False

    @property
    def title(self) -> str:
        """The case's name."""
        what = "1,000 tools listed" if self.lists else "100 B"
        callers = callers_named(self.callers)
        return ", ".join(filter(None, (f"served over {self.transport}", what, callers, self.kind)))

    def contenders(self, names: Sequence[str]) -> list[str]:
        """Return those that take part: all in the ordinary case over HTTP, else those that it is measured for."""
        if self.lists:
            return [name for name in names if name in LISTED]
        if self.kind:
            return [name for name in names if name in ("raw", "toolweave", "toolweave, run_http")]
        if self.transport.startswith("http"):
            return list(names)
        return [name for name in names if name != "toolweave, run_http"]


CASES = (
    *(Case(transport=transport, callers=callers) for transport in ("stdio", "stdio modern") for callers in (1, 16)),
    *(Case(transport="http", callers=callers, kind=kind) for kind in KINDS for callers in (1, 16)),
    *(Case(transport="http legacy", callers=callers) for callers in (1, 16)),
    *(Case(transport="http", callers=callers, lists=True) for callers in (1, 16)),
)


@asynccontextmanager
async def started(name: str, case: Case) -> AsyncGenerator[Served, None]:
    """Start a contender's server, and end it."""
    transport = case.transport
    python = python_of(CLIENTS["fastmcp"]) if name == "fastmcp" else sys.executable
    command = [python, "-m", "benchmarks.served", name]
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
        *(["many"] if case.lists else []),
        *(["token"] if case.kind == "a bearer token" else []),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert server.stdout is not None
        port = int(await asyncio.wait_for(server.stdout.readline(), START_SECONDS))
        token = TOKEN if case.kind == "a bearer token" else ""
        http = RawHttp(f"http://127.0.0.1:{port}/mcp", modern=transport != "http legacy", token=token)
        ask_as(http, case.kind)
        await asyncio.wait_for(http.start(), START_SECONDS)
        yield (Listing if case.lists else Served)(http, server.pid)
        await http.close()
    finally:
        with suppress(ProcessLookupError):
            server.send_signal(signal.SIGKILL)
        await server.wait()


def ask_as(client: RawHttp, kind: str) -> None:
    """Let a client's calls carry what calls of this kind have."""
    if kind == "a `_meta` key":
        client.meta = {"com.example/conversation": "c-7"}
    client.progress = kind == "a progress token"


async def measure(case: Case, rounds: int, names: Sequence[str]) -> dict[str, list[Sample]]:
    """Let the contenders serve in turn."""
    samples: dict[str, list[Sample]] = {name: [] for name in names}
    async with AsyncExitStack() as stack:
        servers = {name: await stack.enter_async_context(started(name, case)) for name in names}
        for _ in range(rounds):
            for name, server in servers.items():
                samples[name].append(await server.turn(case.callers))
    return samples


def serving(settings: Settings) -> list[Figure]:
    """Measure every contender that is installed."""
    names = [name for name in SERVERS if name != "fastmcp" or available(CLIENTS["fastmcp"])]
    if settings.clients:
        names = [name for name in names if name.partition(",")[0] in ("raw", *settings.clients)]
    figures: list[Figure] = []
    for case in CASES:
        is_left_out = case.transport in ("stdio", "http") and case.transport not in settings.transports
        if not is_left_out and settings.wants(case.title):
            samples = asyncio.run(measure(case, min(settings.rounds, 7), case.contenders(names)))
            figures += compare("serving", case.title, samples)
    return figures
