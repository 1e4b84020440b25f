"""Connecting twenty stdio servers in a fresh process, with and without one that hangs; also one server's first call.

Every measurement is a process of its own (`python -m benchmarks.fleet CONTENDER CASE SERVER`), so that imports count.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import anyio

from benchmarks.crew import ROOT, server_command
from benchmarks.measure import Figure, Sample, compare
from benchmarks.settings import Settings

__all__ = ["fleet"]

COUNT = 20
SDK_SERVER = ROOT / "tests" / "servers" / "sdk_server.py"
CASES = {"one": (1, 0), "all": (COUNT, 0), "any": (COUNT, 0), "hang": (COUNT - 1, 1)}
"""Case -> servers that answer, servers that hang."""
TITLES = {
    "one": "1 server, first call",
    "all": f"{COUNT} servers, all listed",
    "any": f"{COUNT} servers, first tool",
    "hang": f"1 of {COUNT} hangs, first tool",
}


def commands(kind: str, case: str) -> list[tuple[str, ...]]:
    """Return the commands of the servers; those that hang come first."""
    healthy, hanging = CASES[case]
    good = server_command() if kind == "lean" else (sys.executable, str(SDK_SERVER), "--kind", "low")
    return [server_command("--hang")] * hanging + [good] * healthy


class Clock:
    """Stops when enough servers are usable: all of them, or the first where that is the question."""

    def __init__(self, servers: int, case: str) -> None:
        self.began = time.perf_counter()
        self.missing = 1 if case in ("any", "hang") else servers
        self.seconds = 0.0
        self.stopped = anyio.Event()

    def usable(self, servers: int = 1) -> None:
        """Count servers that became usable."""
        self.missing -= servers
        if self.missing <= 0 and not self.stopped.is_set():
            self.seconds = time.perf_counter() - self.began
            self.stopped.set()


async def raw(servers: list[tuple[str, ...]], case: str) -> float:
    """Connect with the baseline; return the seconds until enough is usable. Closing is not measured."""
    clock = Clock(len(servers), case)
    from benchmarks.raw import RawStdio

    async def connect(command: tuple[str, ...]) -> None:
        client = RawStdio()
        await client.start(command)
        await client.list_tools()
        if case == "one":
            await client.call_tool(*first_call(command))
        clock.usable()

    async with anyio.create_task_group() as group:
        for command in servers:
            group.start_soon(connect, command)
        await clock.stopped.wait()
        group.cancel_scope.cancel()
    return clock.seconds


async def sdk(servers: list[tuple[str, ...]], case: str) -> float:
    """Connect with the SDK's `Client`, one task each."""
    clock = Clock(len(servers), case)
    from mcp import Client, StdioServerParameters

    async def connect(command: tuple[str, ...]) -> None:
        parameters = StdioServerParameters(command=command[0], args=list(command[1:]))
        async with Client(parameters, mode="legacy") as client:
            page = await client.list_tools()
            while page.next_cursor is not None:
                page = await client.list_tools(cursor=page.next_cursor)
            if case == "one":
                await client.call_tool(*first_call(command))
            clock.usable()
            await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        for command in servers:
            group.start_soon(connect, command)
        await clock.stopped.wait()
        group.cancel_scope.cancel()
    return clock.seconds


async def toolweave(servers: list[tuple[str, ...]], case: str) -> float:
    """Connect with a hub."""
    clock = Clock(len(servers), case)
    from toolweave.hub import connect_mcp_servers

    config: dict[str, Any] = {
        f"s{number}": {"command": command[0], "args": list(command[1:])} for number, command in enumerate(servers)
    }
    async with connect_mcp_servers({"mcpServers": config}, wait="any" if case in ("any", "hang") else "all") as hub:
        listed = {spec.server for spec in hub.snapshot()}
        if case == "one":
            name, arguments = first_call(servers[0])
            result = await hub.execute(f"s0_{name}", arguments)
            if result.is_error:
                raise RuntimeError(f"the call failed: {result.text}")
        clock.usable(len(listed))
        if not clock.stopped.is_set():
            raise RuntimeError(f"only {sorted(map(str, listed))} are usable: {dict(hub.errors)}")
    return clock.seconds


def first_call(command: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """Return a tool of the server and its arguments."""
    return ("rows", {}) if str(SDK_SERVER) in command else ("payload", {"size": 100})


WORKERS: dict[str, Callable[[list[tuple[str, ...]], str], Awaitable[float]]] = {
    "raw": raw,
    "sdk": sdk,
    "toolweave": toolweave,
}


def sample(contender: str, case: str, kind: str) -> Sample:
    """Measure one fresh process; CPU is its own, its servers' not counted."""
    command = [sys.executable, "-m", "benchmarks.fleet", contender, case, kind]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, check=True)
    figures = json.loads(done.stdout)
    return Sample(cpu=figures["cpu"], wall=figures["wall"])


def measure(case: str, kind: str, rounds: int) -> dict[str, list[Sample]]:
    """Measure every contender in turn; one that fails is left out with its reason on standard error."""
    samples: dict[str, list[Sample]] = {name: [] for name in WORKERS}
    for _ in range(rounds):
        for name in list(samples):
            try:
                samples[name].append(sample(name, case, kind))
            except subprocess.CalledProcessError as error:
                last = error.stderr.decode().strip().splitlines()[-1:]
                sys.stderr.write(f"{name} fails, its rows are left out: {''.join(last)}\n")
                del samples[name]
    return samples


def fleet(settings: Settings) -> list[Figure]:
    """Measure each case with a lean server and with one on the SDK; one server's start is the unit of the others."""
    figures: list[Figure] = []
    for kind in ("lean",) if settings.quick else ("lean", "sdk"):
        unit = 0.0
        for case, title in TITLES.items():
            title = f"{kind} server: {title}"
            if not settings.wants(title):
                continue
            rows = compare("start", title, measure(case, kind, min(settings.rounds, 5 if kind == "lean" else 3)))
            unit = unit or rows[0].wall
            figures += [replace(row, starts=row.wall / unit) for row in rows]
    return figures


def main() -> None:
    """Do one measurement and print it."""
    contender, case, kind = sys.argv[1:4]
    wall = asyncio.run(WORKERS[contender](commands(kind, case), case))  # type: ignore[arg-type]
    print(json.dumps({"cpu": time.process_time(), "wall": wall}))


if __name__ == "__main__":
    main()
