"""What starting costs: CPU of fresh processes above bare Python, in units of `import msgspec`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.measure import Figure, Sample, children_cpu, compare
from benchmarks.settings import Settings

__all__ = ["imports"]

ECHO = Path(__file__).with_name("echo_server.py")
PROGRAMS: dict[str, tuple[str, ...]] = {
    "python -c pass": ("-c", "pass"),
    "import msgspec": ("-c", "import msgspec"),
    "import toolweave": ("-c", "import toolweave"),
    "from toolweave import connect_mcp": ("-c", "from toolweave import connect_mcp"),
    "toolweave --version": ("-m", "toolweave", "--version"),
    "toolweave --help": ("-m", "toolweave", "--help"),
    "toolweave call": ("-m", "toolweave", "call", "payload", "size=1", "--", sys.executable, "-S", "-E", str(ECHO)),
    "toolweave tools": ("-m", "toolweave", "tools", "--", sys.executable, "-S", "-E", str(ECHO)),
    "import mcp": ("-c", "import mcp"),
}


def sample(arguments: Sequence[str]) -> Sample:
    """Run a fresh Python once."""
    cpu, wall = children_cpu(), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return Sample(cpu=children_cpu() - cpu, wall=time.perf_counter() - wall)


def above_bare(samples: Mapping[str, Sequence[Sample]]) -> dict[str, list[Sample]]:
    """Subtract bare Python's medians."""
    bare = samples["python -c pass"]
    cpu, wall = (statistics.median(getattr(row, field) for row in bare) for field in ("cpu", "wall"))
    return {
        name: [Sample(cpu=row.cpu - cpu, wall=row.wall - wall) for row in rows]
        for name, rows in samples.items()
        if rows is not bare
    }


def imports(settings: Settings) -> list[Figure]:
    """Measure whole processes against bare Python, and what is above it against `import msgspec`."""
    samples: dict[str, list[Sample]] = {}
    for name, arguments in PROGRAMS.items():
        try:
            sample(arguments)
            samples[name] = []
        except subprocess.CalledProcessError as error:
            last = error.stderr.decode().strip().splitlines()[-1:]
            sys.stderr.write(f"{name} fails, its row is left out: {''.join(last)}\n")
    for _ in range(settings.rounds):
        for name, rows in samples.items():
            rows.append(sample(PROGRAMS[name]))
    figures = compare("start of a process", "whole process", samples, baseline="python -c pass")
    return figures + compare("start of a process", "above bare Python", above_bare(samples), baseline="import msgspec")
