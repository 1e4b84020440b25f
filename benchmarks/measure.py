"""Samples of interleaved rounds, their medians and their ratios. Knows nothing of what is measured."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["Figure", "Sample", "callers_named", "children_cpu", "compare", "machine"]

PACKAGES = ("toolweave", "mcp", "msgspec", "pydantic", "anyio", "httptools", "uvloop")


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds for one operation: CPU of the measured process, and wall clock.

    Attributes:
        p50: The median time from a call to its answer, where calls were timed one by one.
        p99: The same for the slowest one in a hundred.
        stall: The longest time in which the event loop ran nothing else, where that was watched.
        memory: Resident bytes of the process after the round, where that was asked for.
        user: The part of `cpu` outside the kernel, where that was asked for. A client that answers slowly finds its
            input ready and sleeps less often than a fast one, so at one caller `cpu` alone flatters the slow one.
    """

    cpu: float
    wall: float
    p50: float | None = None
    p99: float | None = None
    stall: float | None = None
    memory: int | None = None
    user: float | None = None


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
    p50: float | None = None
    p99: float | None = None
    stall: float | None = None
    memory: int | None = None
    memory_ratio: float | None = None
    starts: float | None = None
    user: float | None = None
    user_ratio: float | None = None


def compare(
    benchmark: str, case: str, samples: Mapping[str, Sequence[Sample]], *, baseline: str = "raw"
) -> list[Figure]:
    """Turn samples into rows; nothing without the baseline. `sdk` among the names adds the ratio to it.

    A ratio is the median of the ratios of the rounds: the two turns of a round were taken shortly after one another,
    so what disturbs a whole round disturbs both.
    """
    samples = {name: rows for name, rows in samples.items() if rows}
    if baseline not in samples:
        sys.stderr.write(f"{benchmark}, {case}: no {baseline}, left out\n")
        return []
    base, sdk = samples[baseline], samples.get("sdk", ())
    return [
        Figure(
            benchmark=benchmark,
            case=case,
            contender=name,
            cpu=row.cpu,
            wall=row.wall,
            cpu_ratio=ratio(rows, base, lambda sample: sample.cpu) or 0.0,
            wall_ratio=ratio(rows, base, lambda sample: sample.wall) or 0.0,
            sdk_ratio=ratio(rows, sdk, lambda sample: sample.cpu),
            rounds=len(rows),
            p50=row.p50,
            p99=row.p99,
            stall=row.stall,
            memory=row.memory,
            memory_ratio=ratio(rows, base, lambda sample: sample.memory),
            user=row.user,
            user_ratio=ratio(rows, base, lambda sample: sample.user),
        )
        for name, rows in samples.items()
        for row in (median(rows),)
    ]


def ratio(rows: Sequence[Sample], base: Sequence[Sample], value: Callable[[Sample], float | None]) -> float | None:
    """Return the median over the rounds of one value in units of the baseline's in the same round."""
    pairs = [(value(row), value(unit)) for row, unit in zip(rows, base, strict=False)]
    return median_or_none(mine / max(unit, 1e-9) for mine, unit in pairs if mine is not None and unit is not None)


def median(rows: Sequence[Sample]) -> Sample:
    """Return the medians of samples; a worst case stays the worst of all rounds."""
    stalls = [row.stall for row in rows if row.stall is not None]
    memory = [row.memory for row in rows if row.memory is not None]
    return Sample(
        cpu=statistics.median(row.cpu for row in rows),
        wall=statistics.median(row.wall for row in rows),
        p50=median_or_none(row.p50 for row in rows),
        p99=median_or_none(row.p99 for row in rows),
        stall=max(stalls, default=None),
        memory=max(memory, default=None),
        user=median_or_none(row.user for row in rows),
    )


def median_or_none(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are there."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def callers_named(count: int) -> str:
    """Return a number of callers as the names of cases have it."""
    return f"{count} caller{'s' * (count > 1)}"


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
