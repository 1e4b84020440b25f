"""Shows figures: tables for people, JSON for programs, a page of ratios for the documentation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Figure
from benchmarks.targets import judge, limit_of

__all__ = ["as_json", "as_markdown", "figures_of", "show"]

Ratio: TypeAlias = Callable[[Figure], float | None]
"""What a cell of a table shows of a row."""


def duration(seconds: float | None) -> str:
    """Return seconds in a unit that reads well."""
    if seconds is None:
        return ""
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * factor:.1f} {unit}"
    return f"{seconds:.2f} s"


def number(value: float | None, text: str = "{:.2f}") -> str:
    """Return a number, or nothing."""
    return "" if value is None else text.format(value)


def as_json(facts: Mapping[str, Any], figures: Sequence[Figure]) -> str:
    """Return everything as one JSON object; seconds are per operation."""
    targets = [asdict(verdict) for verdict in judge(figures)]
    return json.dumps({"machine": facts, "figures": [asdict(row) for row in figures], "targets": targets}, indent=2)


def show(console: Console, facts: Mapping[str, Any], figures: Sequence[Figure]) -> None:
    """Print one table per benchmark, then the targets."""
    packages = ", ".join(f"{name} {number}" for name, number in facts["packages"].items())
    console.print(f"{facts['processor']}, {facts['cores']} cores, load {facts['load'][0]}, {facts['system']}")
    console.print(f"Python {facts['python']}; {packages}")
    for name, rows in groupby(figures, key=lambda figure: figure.benchmark):
        console.print(table(name, list(rows)))
    out = Table("target", "limit", "worst", "where", "", title="targets", title_justify="left")
    for verdict in judge(figures):
        word = "[green]met[/]" if verdict.met else "[red]missed[/]"
        out.add_row(verdict.target, f"<= {verdict.limit:g}", f"{verdict.worst:.2f}", verdict.case, word)
    console.print(out)


COLUMNS: dict[str, Callable[[Figure], str]] = {
    "CPU": lambda row: duration(row.cpu),
    "x raw": lambda row: number(row.cpu_ratio),
    "user x raw": lambda row: number(row.user_ratio),
    "p50": lambda row: duration(row.p50),
    "p99": lambda row: duration(row.p99),
    "per s": lambda row: number(1 / row.wall if row.wall and row.p50 is not None else None, "{:,.0f}"),
    "wall": lambda row: duration(row.wall),
    "wall x raw": lambda row: number(row.wall_ratio),
    "longest stall": lambda row: duration(row.stall),
    "MB": lambda row: number(row.memory / 1e6 if row.memory else None, "{:.0f}"),
    "starts": lambda row: number(row.starts, "{:.1f}"),
}
"""Heading -> cell; a column that is empty in every row is not shown."""


def table(name: str, rows: Sequence[Figure]) -> Table:
    """Return the table of one benchmark."""
    shown = {heading: cell for heading, cell in COLUMNS.items() if any(cell(row) for row in rows)}
    out = Table("case", "what", title=name, title_justify="left")
    for heading in shown:
        out.add_column(heading, justify="right")
    out.add_column("target")
    case = None
    for row in rows:
        if case is not None and row.case != case:
            out.add_section()
        first = row.case if row.case != case else ""
        out.add_row(first, row.contender, *(cell(row) for cell in shown.values()), target_cell(row))
        case = row.case
    return out


def target_cell(row: Figure) -> str:
    """Return whether a row is within its limits."""
    return ", ".join(
        f"[green]met[/] ({target.limit:g})" if value <= target.limit else f"[red]missed[/] ({target.limit:g})"
        for target, value in limit_of(row)
    )


def figures_of(text: str) -> list[Figure]:
    """Return the figures of a run that `as_json` wrote."""
    return [Figure(**row) for row in json.loads(text)["figures"]]


def as_markdown(*runs: Sequence[Figure]) -> str:
    """Return the ratios as tables of a page: contenders beside each other, no absolute time, no machine.

    Of several runs a cell has the mean, and is empty where they differ by more than a quarter.
    """
    parts: list[str] = []
    for benchmark in dict.fromkeys(row.benchmark for row in runs[0]):
        mine = [[row for row in run if row.benchmark == benchmark] for run in runs]
        heading = HEADINGS.get(benchmark)
        if heading is not None:
            title, ratio = heading
            parts.append(ratios(title, [(rows, ratio) for rows in mine]))
        if benchmark == "gateway":
            title = "Time that a caller waits for a call through a gateway, in units of raw"
            parts.append(ratios(title, [(rows, waited(rows)) for rows in mine]))
            title = "Memory of a gateway, in units of raw"
            parts.append(ratios(title, [(rows, lambda row: row.memory_ratio) for rows in mine]))
    return "\n\n".join(parts) + "\n"


def waited(rows: Sequence[Figure]) -> Ratio:
    """Return what gives a row's median wait in units of the baseline's."""
    raw = {row.case: row.p50 for row in rows if row.contender == "raw"}

    def ratio(row: Figure) -> float | None:
        unit = raw.get(row.case)
        return row.p50 / unit if row.p50 is not None and unit else None

    return ratio


def ratios(title: str, runs: Sequence[tuple[Sequence[Figure], Ratio]]) -> str:
    """Return one table of a page: a row for each case, a column for each contender."""
    rows = runs[0][0]
    names = list(dict.fromkeys(row.contender for row in rows if row.contender != "raw"))
    cells = [{(row.case, row.contender): ratio(row) for row in run} for run, ratio in runs]
    lines = [f"### {title}", "", f"| case | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for case in dict.fromkeys(row.case for row in rows):
        texts = [number(agreed([run.get((case, name)) for run in cells])) for name in names]
        lines.append(f"| {case} | {' | '.join(texts)} |")
    return "\n".join(lines)


def agreed(values: Sequence[float | None]) -> float | None:
    """Return the mean of a figure's runs; None where one lacks it, or they differ by more than a quarter."""
    known = [value for value in values if value is not None]
    if len(known) < len(values) or max(known) > 1.25 * min(known):
        return None
    return sum(known) / len(known)


HEADINGS: dict[str, tuple[str, Ratio]] = {
    "calls": ("CPU of the client per call, in units of raw", lambda row: row.cpu_ratio),
    "extremes": ("Time for one large exchange, in units of raw", lambda row: row.wall_ratio),
    "discovery": ("CPU to list many tools, in units of raw", lambda row: row.cpu_ratio),
    "memory": ("Memory after connecting, in units of raw", lambda row: row.memory_ratio),
    "start": (
        "Time from the start of the program until servers are usable, in units of raw",
        lambda row: row.wall_ratio,
    ),
    "post": ("CPU of one POST, in units of raw", lambda row: row.cpu_ratio),
    "serving": ("CPU of a server per call, in units of raw", lambda row: row.cpu_ratio),
    "gateway": ("CPU of a gateway per call, in units of raw", lambda row: row.cpu_ratio),
    "gateway_growth": ("A gateway, in units of the smallest one", lambda row: row.cpu_ratio),
    "catalog": ("CPU of a server with many tools, in units of one with few", lambda row: row.cpu_ratio),
    "agents": ("CPU of an agent, in units of toolweave's", lambda row: row.cpu_ratio),
    "start of a process": ("CPU of an import", lambda row: row.cpu_ratio),
}
"""Benchmark -> heading of its table and the ratio in its cells."""
