"""Shows figures: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Figure
from benchmarks.targets import judge

__all__ = ["as_json", "show"]


def duration(seconds: float) -> str:
    """Return seconds in a unit that reads well."""
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * factor:.1f} {unit}"
    return f"{seconds:.2f} s"


def as_json(facts: Mapping[str, Any], figures: Sequence[Figure]) -> str:
    """Return everything as one JSON object; seconds are per operation."""
    targets = [asdict(verdict) for verdict in judge(figures)]
    return json.dumps({"machine": facts, "figures": [asdict(row) for row in figures], "targets": targets}, indent=2)


def show(console: Console, facts: Mapping[str, Any], figures: Sequence[Figure]) -> None:
    """Print one table per benchmark."""
    packages = ", ".join(f"{name} {number}" for name, number in facts["packages"].items())
    console.print(f"{facts['processor']}, {facts['cores']} cores, load {facts['load'][0]}, {facts['system']}")
    console.print(f"Python {facts['python']}; {packages}")
    for name, rows in groupby(figures, key=lambda figure: figure.benchmark):
        console.print(table(name, list(rows)))
    for verdict in judge(figures):
        word = "[green]met[/]" if verdict.met else "[red]missed[/]"
        console.print(f"{word}: {verdict.target}; worst {verdict.worst:.2f} of {verdict.limit} ({verdict.case})")


def table(name: str, rows: Sequence[Figure]) -> Table:
    """Return the table of one benchmark."""
    out = Table(title=name, title_justify="left")
    started = any(row.starts is not None for row in rows)
    out.add_column("case")
    out.add_column("what")
    for heading in ("CPU", "x baseline", "wall", "x baseline", "CPU / SDK", *(["starts"] if started else [])):
        out.add_column(heading, justify="right")
    case = None
    for row in rows:
        if case is not None and row.case != case:
            out.add_section()
        out.add_row(
            row.case if row.case != case else "",
            row.contender,
            duration(row.cpu),
            f"{row.cpu_ratio:.2f}",
            duration(row.wall),
            f"{row.wall_ratio:.2f}",
            "" if row.sdk_ratio is None else f"{row.sdk_ratio:.2f}",
            *(["" if row.starts is None else f"{row.starts:.1f}"] if started else []),
        )
        case = row.case
    return out
