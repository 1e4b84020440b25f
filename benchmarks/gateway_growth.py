"""A gateway in front of more and more upstreams, and of one with more and more tools: what grows with them.

The upstreams are lean processes, each gateway a process of its own, as the command serves it. Every row is in units of
the smallest gateway; `python -m benchmarks.gateway_growth FIGURES.json PICTURE.svg` draws what `--json` printed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.crew import server_command
from benchmarks.gateway import OneEndpoint, Through, ended, free_port, started_process, until_it_answers
from benchmarks.measure import Figure, Sample, compare
from benchmarks.plot import Panel, picture
from benchmarks.settings import Settings

__all__ = ["gateway_growth"]

UPSTREAMS = (1, 10, 50, 100, 200)
TOOLS = (10, 100, 1_000, 10_000)
CALLERS = 16
ROUNDS = 3
START_SECONDS = 120.0
CASES = ("start", "a call, 16 callers", "a page of the list", "memory")
KINDS = {"upstreams": UPSTREAMS, "tools": TOOLS}


@dataclass(frozen=True, slots=True)
class Size:
    """One size of a gateway."""

    upstreams: int
    tools: int

    @property
    def servers(self) -> Mapping[str, Any]:
        """The entries of its config."""
        command, *arguments = server_command("--era", "modern", "--tools", self.tools)
        return {f"s{number}": {"command": command, "args": arguments} for number in range(self.upstreams)}


async def measure(size: Size) -> dict[str, Sample]:
    """Start a gateway of a size and measure it."""
    names = tuple(size.servers)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "mcp.json"
        config.write_text(json.dumps({"mcpServers": size.servers}))
        port = free_port()
        begun = time.perf_counter()
        process = await started_process(
            [sys.executable, "-m", "benchmarks.gateway", "toolweave", str(port), str(config)]
        )
        caller = OneEndpoint(f"http://127.0.0.1:{port}/mcp", modern=True)
        through = Through(caller, process.pid, names)
        try:
            async with asyncio.timeout(START_SECONDS):
                await until_it_answers(caller, names)
            wall, cpu = time.perf_counter() - begun, through.cpu()
            call = await through.turn(CALLERS)
            page = await listing(caller, through)
            await caller.close()
        finally:
            await ended(process)
    memory = call.memory or 0
    return dict(zip(CASES, (Sample(cpu, wall), call, page, Sample(memory, memory, memory=memory)), strict=True))


async def listing(caller: OneEndpoint, through: Through) -> Sample:
    """Ask for the first page of the list for a while."""
    await caller.request("tools/list", {})
    cpu, begun, count = through.cpu(), time.perf_counter(), 0
    while time.perf_counter() - begun < 0.5:
        await caller.request("tools/list", {})
        count += 1
    return Sample((through.cpu() - cpu) / count, (time.perf_counter() - begun) / count)


def gateway_growth(settings: Settings) -> list[Figure]:
    """Measure each size in turn."""
    found: list[Figure] = []
    for kind, sizes in KINDS.items():
        sizes = sizes[:2] if settings.quick else sizes
        samples: dict[str, dict[str, list[Sample]]] = {case: {} for case in CASES}
        for _ in range(min(settings.rounds, ROUNDS)):
            for count in sizes:
                size = Size(count, 0) if kind == "upstreams" else Size(1, count)
                for case, sample in asyncio.run(measure(size)).items():
                    samples[case].setdefault(f"{count:,} {kind}", []).append(sample)
        for case, rows in samples.items():
            if settings.wants(title := f"gateway by {kind}: {case}"):
                found += compare("gateway_growth", title, rows, baseline=f"{sizes[0]:,} {kind}")
    return found


def drawn(figures: Sequence[Mapping[str, Any]]) -> str:
    """Return the picture of figures as JSON has them."""
    panels: list[Panel] = []
    for kind, sizes in KINDS.items():
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in figures:
            title, _, case = str(row["case"]).partition(": ")
            count = int(str(row["contender"]).split()[0].replace(",", ""))
            if title == f"gateway by {kind}" and count in sizes:
                lines.setdefault(case, []).append((count, row["wall_ratio" if case == "start" else "cpu_ratio"]))
        panels.append(Panel(title=f"number of {kind}", lines=lines))
    return picture("A gateway in units of the smallest one", panels)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(drawn(json.loads(Path(sys.argv[1]).read_text())["figures"]))
