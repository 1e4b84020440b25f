"""Interleaved rounds, medians, ratios. Knows nothing of what is measured."""

from __future__ import annotations

import gc
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["Contender", "Figure", "Sample", "children_cpu", "compare", "interleave", "machine"]

PACKAGES = ("toolweave", "mcp", "fastmcp", "msgspec", "pydantic", "anyio")


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds for one operation: CPU of the measured process, and wall clock."""

    cpu: float
    wall: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Something that does `n` operations when told to."""

    name: str
    run: Callable[[int], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row: medians of seconds per operation, and their ratios to the baseline and to the SDK.

    `starts` is the wall time in units of one server's start with the raw client, where that is measured.
    """

    benchmark: str
    case: str
    contender: str
    cpu: float
    wall: float
    cpu_ratio: float
    wall_ratio: float
    sdk_ratio: float | None
    rounds: int
    operations: int
    starts: float | None = None


async def interleave(contenders: Sequence[Contender], *, operations: int, rounds: int) -> dict[str, list[Sample]]:
    """Let every contender do `operations` in each round, in turn; the first round is a warm-up and dropped."""
    samples: dict[str, list[Sample]] = {contender.name: [] for contender in contenders}
    for number in range(rounds + 1):
        for contender in contenders:
            gc.collect()
            cpu, wall = time.process_time(), time.perf_counter()
            await contender.run(operations)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            if number:
                samples[contender.name].append(Sample(cpu / operations, wall / operations))
    return samples


def compare(
    benchmark: str, case: str, samples: Mapping[str, Sequence[Sample]], *, operations: int = 1, baseline: str = "raw"
) -> list[Figure]:
    """Turn samples into rows; `sdk` among the names adds the ratio to it."""
    cpu = {name: statistics.median(sample.cpu for sample in rows) for name, rows in samples.items()}
    wall = {name: statistics.median(sample.wall for sample in rows) for name, rows in samples.items()}
    return [
        Figure(
            benchmark=benchmark,
            case=case,
            contender=name,
            cpu=cpu[name],
            wall=wall[name],
            cpu_ratio=cpu[name] / max(cpu[baseline], 1e-9),
            wall_ratio=wall[name] / max(wall[baseline], 1e-9),
            sdk_ratio=cpu[name] / max(cpu["sdk"], 1e-9) if "sdk" in cpu else None,
            rounds=len(rows),
            operations=operations,
        )
        for name, rows in samples.items()
    ]


def children_cpu() -> float:
    """Return the CPU seconds of all children that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def machine() -> dict[str, Any]:
    """Return facts that a reader needs to judge the figures."""
    versions: dict[str, str] = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.release()}",
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": [round(value, 2) for value in os.getloadavg()],
        "packages": versions,
    }


def processor() -> str:
    """Return the processor's name."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
