"""The published tables of the battery: plays it against three clients and writes docs/reliability.md and faults.md.

`scripts/reliability` runs it. Every row is played in a process of its own; see `experiments.faults.runner`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from rich.console import Console
from rich.progress import Progress

from experiments.faults.defences import DEFENCES, SETTINGS
from experiments.faults.gateway_groups import TOGETHER, chosen
from experiments.faults.judge import BOUND
from experiments.faults.rows import COMBOS, ROWS, Combo, Row, runs

__all__ = [
    "TABLE",
    "Column",
    "Outcomes",
    "all_columns",
    "as_page",
    "as_table",
    "introduction",
    "kinds",
    "main",
    "named",
    "published_columns",
    "totals",
    "wrong",
]

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PAGE = CHECKOUT / "docs" / "reliability.md"
TABLE = Path(__file__).parent / "faults.md"
"""Every fault with every outcome; the page has the totals."""
CLIENTS = ("toolweave", "defaults", "gateway", "sdk", "fastmcp")
OURS = 3
"""How many of them are ours."""
WITHOUT_SETTINGS = ("defaults", "gateway")
PATIENCE = 10.0
"""Seconds that whoever plays with default settings waits for a step."""
TITLES = {
    "toolweave": "Toolweave",
    "defaults": "Toolweave, default settings",
    "gateway": "Toolweave, through a gateway",
    "sdk": "MCP SDK",
    "fastmcp": "FastMCP",
}

Outcomes = dict[str, dict[tuple[str, Combo], list[str]]]
"""Client -> (row, combination) -> what was wrong."""

KINDS = {
    "hang": "a wait had no end",
    "wrong value": "a value was wrong, and no error said so",
    "escaped": "something came out that no `except Exception` catches",
    "neighbour": "a healthy server beside it was touched",
    "no next call": "the next call did not work",
    "no connection": "there was no connection where one could be had",
    "lost call": "the call failed where the right value could be had",
    "lost tools": "healthy tools were not listed",
    "silent": "a value came where only an error is right",
    "no cause": "the error did not name the cause",
    "close": "closing failed",
    "process": "a process or a zombie was left",
    "descriptor": "a file descriptor was left open",
}
"""What a cell may say, with its meaning."""


def kinds(problems: list[str]) -> list[str]:
    """Return the kinds of what was wrong, the worst first."""
    found = {kind_of(problem) for problem in problems}
    return [kind for kind in KINDS if kind in found]


STEPS = {
    "processes": "process",
    "zombies": "process",
    "file descriptors": "descriptor",
    "the client's process": "hang",
    "the event loop": "escaped",
}
"""Findings that are told by the step alone."""
WORDS = {"hang": "hang", "escaped": "escaped", "wrong value": "wrong value"}
"""Findings that weigh the same at every step."""
PLACES = {
    "the next call": "no next call",
    "the next try": "no next call",
    "the list": "lost tools",
    "the list afterwards": "lost tools",
}
SAYINGS = {"the error does not say": "no cause", "a value where": "silent", "it connected": "silent"}
FAILURES = {"connecting": "no connection", "the call": "lost call", "closing": "close"}


def kind_of(problem: str) -> str:
    """Return the kind of one finding of the judge."""
    step, _, said = problem.partition(": ")
    if step in STEPS:
        return STEPS[step]
    if step == "a neighbour":
        return "neighbour"
    for words in (WORDS, PLACES, SAYINGS):
        for start, kind in words.items():
            if (step if words is PLACES else said).startswith(start):
                return kind
    return FAILURES[step]


def totals(outcomes: Outcomes) -> dict[str, dict[str, str]]:
    """Return the rows of the table of totals: what is counted -> client -> the figure."""
    table: dict[str, dict[str, str]] = {}
    for transport in ("stdio", "http"):
        name = f"{'stdio' if transport == 'stdio' else 'HTTP'}: faults passed in every revision"
        for client, found in outcomes.items():
            rows = [row for row in ROWS if any(combo.startswith(transport) for combo, _ in of_row(found, row))]
            passed = [
                row
                for row in rows
                if not any(problems for combo, problems in of_row(found, row) if combo.startswith(transport))
            ]
            table.setdefault(name, {})[client] = f"{len(passed)} of {len(rows)}"
    played = "runs passed (fault x transport x revision)"
    for client, found in outcomes.items():
        table.setdefault(played, {})[client] = f"{sum(not said for said in found.values())} of {len(found)}"
        counted = Counter(kind for said in found.values() for kind in kinds(said))
        for kind, meaning in KINDS.items():
            table.setdefault(f"`{kind}`: runs in which {meaning}", {})[client] = str(counted[kind])
    return table


def of_row(found: dict[tuple[str, Combo], list[str]], row: Row) -> Iterator[tuple[Combo, list[str]]]:
    """Yield what was wrong with a row, by combination that was played."""
    for combo in runs(row):
        if (row.name, combo) in found:
            yield combo, found[row.name, combo]


def cell(said: list[str]) -> str:
    """Return what a cell of the table says."""
    return ", ".join(kinds(said)) or "✓"


def by_settings() -> str:
    """Return the rows that are lost by a setting, and how."""
    return "; ".join(f"`{name}` ({why})" for name, why in SETTINGS.items())


def introduction() -> list[str]:
    """Return what the page says before its figures."""
    played = sum(len(runs(row)) for row in ROWS)
    return [
        "# Reliability: servers that misbehave",
        "",
        f"`scripts/reliability` plays {len(ROWS)} faults in {played} runs for each client and",
        "writes this page. Each fault is a real process or socket that misbehaves in one way. A client connects,",
        "calls `echo` twice on one connection and closes it, between two healthy servers. A run passes if",
        "",
        "- the faulty call ends in time, with the right value or with an error that names the cause",
        "  (HTTP status, exit code, last output), and never with a wrong value",
        "- the next call works, or fails in time if the server stays broken",
        "- healthy tools are listed beside malformed ones, and both healthy servers answer throughout",
        "- closing ends in time and leaves no process, zombie or file descriptor",
        "",
        "Waits are limited to 3 s for faults that hang and to 10 s for others. Every client gets this limit as its",
        "documented timeout. FastMCP has `keep_alive=False`, so that its processes end with the connection.",
        "",
        "All faults with all outcomes are in `experiments/faults/faults.md`. The tests play all of them against",
        "Toolweave, and check that each fault can be detected:",
        "",
        f"- {len(ROWS) - len(DEFENCES) - len(SETTINGS)} faults are lost by a client without any defence",
        f"- {len(DEFENCES)} are lost once the one or two defences that they test are removed",
        f"- {len(SETTINGS)} are lost by Toolweave with a setting: {by_settings()}",
        "",
    ]


class Column(NamedTuple):
    """What the page says of one client.

    Attributes:
        title: Its name and version.
        figures: The totals, by what is counted.
        cells: What its cells say, by fault; several where each combination has a cell of its own.
    """

    title: str
    figures: Mapping[str, str]
    cells: Mapping[str, Sequence[str]]


def played_columns(outcomes: Outcomes, versions: Mapping[str, str]) -> dict[str, Column]:
    """Return the columns of the clients that were played."""
    counted = totals(outcomes)
    columns: dict[str, Column] = {}
    for client, found in outcomes.items():
        cells: dict[str, Sequence[str]] = {}
        for row in ROWS:
            said = dict(of_row(found, row))
            each = [cell(said[combo]) if combo in said else "-" for combo in COMBOS]
            cells[named(row)] = (
                each if client == "toolweave" else [cell([one for each_run in said.values() for one in each_run])]
            )
        figures = {name: by_client[client] for name, by_client in counted.items()}
        columns[client] = Column(f"{TITLES[client]} {versions[client]}", figures, cells)
    return columns


def published_columns(page: str, table: str) -> dict[str, Column]:
    """Return the columns of a page and its table as they are."""
    heads, *counted = rows_under(page, "Totals")
    _, *faults = rows_under(table, "Every fault")
    by_title = {title: client for client, title in TITLES.items()}
    columns: dict[str, Column] = {}
    for number, title in enumerate(heads[1:]):
        client = by_title[title.rpartition(" ")[0]]
        place = slice(2, 2 + len(COMBOS)) if client == "toolweave" else slice(1 + len(COMBOS) + number, None)
        cells = {cells[0]: cells[place] if client == "toolweave" else cells[place][:1] for cells in faults}
        columns[client] = Column(title, {row[0]: row[1 + number] for row in counted}, cells)
    return columns


def rows_under(page: str, heading: str) -> list[list[str]]:
    """Return the rows of the table under a heading as cells, the first row included."""
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[one.strip() for one in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def as_page(columns: Mapping[str, Column]) -> str:
    """Return the whole page: the totals, and the faults that one of our columns has not passed."""
    lines = [
        *introduction(),
        "## Totals",
        "",
        f"| | {' | '.join(column.title for column in columns.values())} |",
        f"|---|{'---|' * len(columns)}",
    ]
    lines += [
        f"| {name} | {' | '.join(column.figures[name] for column in columns.values())} |"
        for name in next(iter(columns.values())).figures
    ]
    lines += remarks(columns)
    ours = [column for client, column in columns.items() if client in CLIENTS[:OURS]]
    lines += ["", "## Faults that one of our columns does not pass", ""]
    lines += [
        f"| fault | the server | {' | '.join(column.title for column in ours)} |",
        f"|---|---|{'---|' * len(ours)}",
    ]
    for row in ROWS:
        said = [", ".join(sorted({*column.cells[named(row)]} - {"✓", "-"})) or "✓" for column in ours]
        if set(said) != {"✓"}:
            lines.append(f"| {named(row)} | {about(row)} | {' | '.join(said)} |")
    return "\n".join(lines) + "\n"


def as_table(columns: Mapping[str, Column]) -> str:
    """Return every fault with every outcome."""
    heads = [
        *(combo.replace("-", ", ").replace("http", "HTTP") for combo in COMBOS),
        *(TITLES[one] for one in columns if one != "toolweave"),
    ]
    lines = [
        "# Faults and outcomes",
        "",
        "Written by `scripts/reliability`; [docs/reliability.md](../../docs/reliability.md) explains it.",
        "A dash is a combination that cannot exist. The columns of other clients combine all transports and revisions.",
        "",
        "## Every fault",
        "",
        f"| fault | the server | {' | '.join(heads)} |",
        f"|---|---|{'---|' * len(heads)}",
    ]
    for row in ROWS:
        cells = [one for column in columns.values() for one in column.cells[named(row)]]
        lines.append(f"| {named(row)} | {about(row)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def all_columns(outcomes: Outcomes, versions: Mapping[str, str], published: Mapping[str, Column]) -> dict[str, Column]:
    """Return the columns of the clients that were played, and of the others as they were published."""
    found = {**published, **played_columns(outcomes, versions)}
    return {client: found[client] for client in CLIENTS if client in found}


def about(row: Row) -> str:
    """Return what the server of a fault does, as a cell."""
    return " ".join(row.about.split()).replace("|", "\\|")


def remarks(clients: Container[str]) -> list[str]:
    """Return what is to be known of the columns."""
    lines: list[str] = []
    if "defaults" in clients:
        lines += [
            "",
            f'"{TITLES["defaults"]}" has no timeout set. There, a wait of more than {PATIENCE:g} s counts as a',
            "hang, although the default timeouts are longer on purpose. Other clients were not played with defaults.",
        ]
    if "gateway" in clients:
        lines += [
            "",
            f'"{TITLES["gateway"]}" is a client in front of `toolweave gateway --config FILE --http ...`, a separate',
            f"process with up to {TOGETHER} faulty servers between two healthy ones. Each fault is played in one",
            f"combination, and more than {BOUND:g} s of silence count as a hang.",
        ]
    return lines


def named(row: Row) -> str:
    """Return the cell that names a fault."""
    return f"`{row.mode}`{row.name.removeprefix(row.mode)}"


def wanted_of(client: str) -> list[tuple[str, Combo]]:
    """Return the runs of a client: every row in every combination; through a gateway in one of them."""
    if client == "gateway":
        return list(chosen().items())
    return [(row.name, combo) for row in ROWS for combo in runs(row)]


def played(client: str, python: str, jobs: int, tick: Any) -> dict[tuple[str, Combo], list[str]]:
    """Play the whole battery against one client; `tick` is called after each run."""
    wanted = "".join(f"{name}\t{combo}\n" for name, combo in wanted_of(client))
    path = os.pathsep.join([str(CHECKOUT / "src"), str(CHECKOUT)])
    found: dict[tuple[str, Combo], list[str]] = {}
    command = [python, "-m", "experiments.faults.runner", client, "--jobs", str(jobs)]
    if client == "defaults":
        command += ["--bound", str(PATIENCE)]
    if client == "gateway":
        command = [python, "-m", "experiments.faults.gateway_groups"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": path},
    ) as runner:
        assert runner.stdin is not None
        assert runner.stdout is not None
        runner.stdin.write(wanted)
        runner.stdin.close()
        for line in runner.stdout:
            said = json.loads(line)
            found[said["row"], cast("Combo", said["combo"])] = said["problems"]
            tick()
    if len(found) != wanted.count("\n"):
        raise SystemExit(f"the runner of {client} ended early, with exit code {runner.returncode}")
    return found


def version(python: str, package: str) -> str:
    """Return the version of a package in a Python."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def wrong(outcomes: Outcomes) -> bool:
    """Whether ours does worse than the page promises: without settings, a silence may be longer than is waited for."""
    return any(
        kinds(said) != ["hang"] if client in WITHOUT_SETTINGS else True
        for client in CLIENTS[:OURS]
        for said in outcomes.get(client, {}).values()
        if said
    )


def main() -> None:
    """Play, print the totals, and write what is asked for."""
    parser = argparse.ArgumentParser(prog="scripts/reliability", description="Play the fault battery and publish it.")
    parser.add_argument("--json", action="store_true", help="print every outcome as JSON instead of writing the page")
    parser.add_argument("--only-ours", action="store_true", help="leave other projects' clients out; writes no page")
    parser.add_argument(
        "--client",
        action="append",
        choices=CLIENTS,
        help="play this client alone; the page keeps its other columns (may be given several times)",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="runs at once")
    parser.add_argument("--fastmcp", default=sys.executable, metavar="PYTHON", help="a Python that has fastmcp")
    options = parser.parse_args()
    clients = options.client or (CLIENTS[:OURS] if options.only_ours else CLIENTS)
    pythons = {client: options.fastmcp if client == "fastmcp" else sys.executable for client in clients}
    console = Console(stderr=True)
    outcomes: Outcomes = {}
    with Progress(console=console, disable=not console.is_terminal) as progress:
        for client in clients:
            task = progress.add_task(TITLES[client], total=len(wanted_of(client)))
            outcomes[client] = played(client, pythons[client], options.jobs, lambda task=task: progress.advance(task))
    packages = {"sdk": "mcp", "fastmcp": "fastmcp"}
    versions = {client: version(pythons[client], packages.get(client, "toolweave")) for client in clients}
    if options.json:
        rows = [
            {"client": client, "row": row, "combo": combo, "problems": said}
            for client, found in outcomes.items()
            for (row, combo), said in sorted(found.items())
        ]
        print(json.dumps({"versions": versions, "runs": rows}))
    elif not options.only_ours:
        published: Mapping[str, Column] = {}
        if options.client:
            published = published_columns(PAGE.read_text(encoding="utf-8"), TABLE.read_text(encoding="utf-8"))
        columns = all_columns(outcomes, versions, published)
        for path, text in ((PAGE, as_page(columns)), (TABLE, as_table(columns))):
            path.write_text(text, encoding="utf-8")
            console.print(f"wrote {path.relative_to(CHECKOUT)}")
    for name, figures in totals(outcomes).items():
        console.print(f"{name}: {', '.join(f'{TITLES[one]} {figure}' for one, figure in figures.items())}")
    sys.exit(wrong(outcomes))


if __name__ == "__main__":
    main()
