"""The limits that this project has set itself, checked against figures. A report, never a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.measure import Figure

__all__ = ["Verdict", "judge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One target, its worst row and whether that row is within the limit."""

    target: str
    limit: float
    worst: float
    case: str
    met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A limit on a ratio of some rows."""

    text: str
    limit: float
    applies: Callable[[Figure], bool]
    ratio: Callable[[Figure], float | None]


TARGETS = (
    Target(
        text="a call costs at most 30 % more CPU than the SDK's client",
        limit=1.3,
        applies=lambda row: row.benchmark == "one call" and row.contender.startswith("toolweave"),
        ratio=lambda row: row.sdk_ratio,
    ),
    Target(
        text="`import toolweave` costs at most 2.5 times `import msgspec`",
        limit=2.5,
        applies=lambda row: row.case == "above bare Python" and row.contender == "import toolweave",
        ratio=lambda row: row.cpu_ratio,
    ),
)


def judge(figures: Sequence[Figure]) -> list[Verdict]:
    """Return a verdict for every target that has rows."""
    verdicts: list[Verdict] = []
    for target in TARGETS:
        rows = [(ratio, row) for row in figures if target.applies(row) and (ratio := target.ratio(row)) is not None]
        if rows:
            worst, row = max(rows, key=lambda pair: pair[0])
            case = f"{row.case}: {row.contender}"
            verdict = Verdict(target=target.text, limit=target.limit, worst=worst, case=case, met=worst <= target.limit)
            verdicts.append(verdict)
    return verdicts
