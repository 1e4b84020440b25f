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
from pathlib import Path
from typing import Any

import anyio

from benchmarks.clients import server_command
from benchmarks.measure import Figure, Sample, compare

__all__ = ["fleet"]

COUNT = 20
ROOT = Path(__file__).parents[1]
SDK_SERVER = ROOT / "tests" / "servers" / "sdk_server.py"
CASES = {"one": (1, 0), "all": (COUNT, 0), "hang": (COUNT - 1, 1)}
TITLES = {"one": "1 server, first call", "all": f"{COUNT} servers, all listed", "hang": "1 of 20 hangs, first tool"}


def commands(kind: str, case: str) -> list[tuple[str, ...]]:
    """Return the commands of the servers; those that hang come first."""
    healthy, hanging = CASES[case]
    good = server_command() if kind == "lean" else (sys.executable, str(SDK_SERVER), "--kind", "low")
    return [server_command("--hang")] * hanging + [good] * healthy


async def raw(servers: list[tuple[str, ...]], case: str) -> float:
    """Connect with the baseline; return the seconds until done."""
    from benchmarks.raw import RawStdio

    began = time.perf_counter()
    first = anyio.Event()

    async def connect(command: tuple[str, ...]) -> None:
        client = RawStdio()
        await client.start(command)
        tools = await client.list_tools()
        if case == "one":
            await client.call_tool(tools[0].name, {"size": 100, "text": "x"})
        first.set()
        if case != "hang":
            await client.close()

    async with anyio.create_task_group() as group:
        for command in servers:
            group.start_soon(connect, command)
        if case == "hang":
            await first.wait()
            seconds = time.perf_counter() - began
            group.cancel_scope.cancel()
            return seconds
    return time.perf_counter() - began


async def sdk(servers: list[tuple[str, ...]], case: str) -> float:
    """Connect with the SDK's `Client`, one task each."""
    began = time.perf_counter()
    from mcp import Client, StdioServerParameters

    first = anyio.Event()

    async def connect(command: tuple[str, ...]) -> None:
        parameters = StdioServerParameters(command=command[0], args=list(command[1:]))
        async with Client(parameters, mode="legacy") as client:
            page = await client.list_tools()
            while page.next_cursor is not None:
                page = await client.list_tools(cursor=page.next_cursor)
            if case == "one":
                await client.call_tool("payload" if "echo_server.py" in command[3] else "rows", {"size": 100})
            first.set()

    async with anyio.create_task_group() as group:
        for command in servers:
            group.start_soon(connect, command)
        await first.wait()
        if case == "hang":
            seconds = time.perf_counter() - began
            group.cancel_scope.cancel()
            return seconds
    return time.perf_counter() - began


async def toolweave(servers: list[tuple[str, ...]], case: str) -> float:
    """Connect with a hub."""
    began = time.perf_counter()
    from toolweave.hub import connect_mcp_servers

    config: dict[str, Any] = {
        f"s{number}": {"command": command[0], "args": list(command[1:])} for number, command in enumerate(servers)
    }
    hub = await connect_mcp_servers({"mcpServers": config}, wait="any" if case == "hang" else "all")
    try:
        if case == "hang":
            if not hub.snapshot():
                raise RuntimeError("no tool is usable")
            return time.perf_counter() - began
        if hub.errors:
            raise RuntimeError(f"not all servers connected: {dict(hub.errors)}")
        if case == "one":
            name = next(iter(hub.snapshot())).name
            await hub.execute(name, {"size": 100, "text": "x"})
    finally:
        seconds = time.perf_counter() - began
        await hub.close()
    return seconds if case == "one" else time.perf_counter() - began


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


async def measure(case: str, kind: str, rounds: int) -> dict[str, list[Sample]]:
    """Measure every contender in turn; one that fails is left out with its reason on standard error."""
    samples: dict[str, list[Sample]] = {name: [] for name in WORKERS}
    for _ in range(rounds):
        for name in list(samples):
            try:
                samples[name].append(await anyio.to_thread.run_sync(sample, name, case, kind))
            except subprocess.CalledProcessError as error:
                last = error.stderr.decode().strip().splitlines()[-1:]
                sys.stderr.write(f"{name} fails, its rows are left out: {''.join(last)}\n")
                del samples[name]
    return samples


async def fleet(rounds: int, quick: bool) -> list[Figure]:
    """Measure each case with a lean server and with one on the SDK; one server's start is the unit of the others."""
    figures: list[Figure] = []
    for kind in ("lean",) if quick else ("lean", "sdk"):
        unit = 0.0
        for case, title in TITLES.items():
            rows = compare("start", f"{kind} server: {title}", await measure(case, kind, min(rounds, 5)))
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
