"""The table of docs/features.md: plays every experiment with every library, and writes `outcomes.json` and the pages.

`scripts/features` runs it. The table is made of `outcomes.json`; what it says of Toolweave is asserted by a test.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from benchmarks.peers import install, python_in
from experiments.attacks.report import version
from experiments.features.playing import CHECKOUT, played
from experiments.features.rows import ROWS, Cell

__all__ = ["LIBRARIES", "OURS", "Outcomes", "experiments", "main", "read", "table"]

FILE = Path(__file__).with_name("outcomes.json")
OURS = "toolweave"


class Peer(NamedTuple):
    """A library beside ours.

    Attributes:
        title: Its name in the table.
        package: Its package.
        requirement: What its environment has.
    """

    title: str
    package: str
    requirement: str


LIBRARIES: Mapping[str, Peer] = {
    "fastmcp": Peer("FastMCP", "fastmcp", "fastmcp opentelemetry-sdk"),
    "langchain": Peer(
        "LangChain adapters", "langchain-mcp-adapters", "langchain-mcp-adapters langchain opentelemetry-sdk"
    ),
    "pydantic_ai": Peer("Pydantic AI", "pydantic-ai-slim", "pydantic-ai-slim[mcp] opentelemetry-sdk"),
    "openai_agents": Peer("OpenAI Agents SDK", "openai-agents", "openai-agents opentelemetry-sdk"),
}
"""The peers by the names of their modules in `experiments/features/libraries`, in the order of the table."""


class Outcomes(NamedTuple):
    """What was measured.

    Attributes:
        month: When.
        versions: Peer -> its version.
        cells: Row -> library -> its cell.
    """

    month: str
    versions: Mapping[str, str]
    cells: Mapping[str, Mapping[str, Cell]]

    def to_json(self) -> str:
        """Return the content of `outcomes.json`."""
        cells = {
            row: {
                library: {"outcome": cell.outcome, **({"note": cell.note} if cell.note else {})}
                for library, cell in of_row.items()
            }
            for row, of_row in self.cells.items()
        }
        return json.dumps({"month": self.month, "versions": self.versions, "cells": cells}, indent=2) + "\n"


def read() -> Outcomes:
    """Return what `outcomes.json` has."""
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    cells = {
        row: {library: Cell(**cell) for library, cell in of_row.items()} for row, of_row in content["cells"].items()
    }
    return Outcomes(content["month"], content["versions"], cells)


def table(outcomes: Outcomes) -> Iterator[str]:
    """Yield the table, with the line above it."""
    yield f"What clients of MCP servers do, measured in {outcomes.month}:\n\n"
    heads = ["", "Toolweave", *(f"{peer.title} {outcomes.versions[name]}" for name, peer in LIBRARIES.items())]
    yield f"| {' | '.join(heads).strip()} |\n|{'---|' * len(heads)}\n"
    for name, row in ROWS.items():
        cells = [str(outcomes.cells[name][library]) for library in (OURS, *LIBRARIES)]
        yield f"| {' | '.join([row.title, *cells])} |\n"


def experiments() -> Iterator[str]:
    """Yield the table of what is tried for each row."""
    yield "| feature | what is tried, and what counts as yes |\n|---|---|\n"
    for row in ROWS.values():
        yield f"| {row.title} | {row.experiment} |\n"


def measure(library: str, row: str) -> Cell:
    """Play one experiment and return its cell; what was observed goes to standard error."""
    python = sys.executable if library == OURS else python_in(LIBRARIES[library].requirement)
    cell, shown = Cell("not measured"), "it is not installed"
    if python is not None:
        with tempfile.TemporaryDirectory(prefix="toolweave-", ignore_cleanup_errors=True) as folder:
            try:
                cell, observed = anyio.run(played, library, python, row, Path(folder))
                shown = json.dumps(observed.facts)[:400]
            except (RuntimeError, TimeoutError) as exc:
                shown = repr(exc)
    sys.stderr.write(f"{library}: {row}: {cell}\n    {shown}\n")
    return cell


def main() -> None:
    """Play, print the table, and write it if that is asked for."""
    parser = argparse.ArgumentParser(
        prog="scripts/features", description="Measure the table of features in docs/features.md."
    )
    names = (OURS, *LIBRARIES)
    parser.add_argument("--write", action="store_true", help="renew outcomes.json; without it, nothing is written")
    parser.add_argument("--upgrade", action="store_true", help="bring the environments of the peers up to date first")
    parser.add_argument("--library", action="append", choices=names, help="play only this one; others keep their cells")
    parser.add_argument("--row", action="append", choices=ROWS, help="play only this one; others keep their cells")
    options = parser.parse_args()
    libraries, rows = options.library or names, options.row or tuple(ROWS)
    peers = {name: LIBRARIES[name] for name in libraries if name != OURS}
    if peers:
        install([peer.requirement for peer in peers.values()], upgrade=options.upgrade)
    versions = {
        name: version(python, peer.package) for name, peer in peers.items() if (python := python_in(peer.requirement))
    }
    known = read()
    new = {(row, library): measure(library, row) for library in libraries for row in rows}
    cells = {
        row: {**known.cells.get(row, {}), **{library: cell for (of, library), cell in new.items() if of == row}}
        for row in ROWS
    }
    outcomes = Outcomes(time.strftime("%B %Y"), {**known.versions, **versions}, cells)
    sys.stdout.write("".join(table(outcomes)))
    if options.write:
        FILE.write_text(outcomes.to_json(), encoding="utf-8")
        sys.stderr.write(f"wrote {FILE.relative_to(CHECKOUT)}; scripts/docs renews the pages\n")


if __name__ == "__main__":
    main()
