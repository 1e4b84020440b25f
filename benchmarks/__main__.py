"""`python -m benchmarks [NAME ...] [--json] [--rounds N] [--quick]`."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Awaitable, Callable

import anyio
from rich.console import Console

from benchmarks.calls import calls, throughput
from benchmarks.discovery import discovery
from benchmarks.fleet import fleet
from benchmarks.imports import imports
from benchmarks.measure import Figure, machine
from benchmarks.report import as_json, show

BENCHMARKS: dict[str, Callable[[int, bool], Awaitable[list[Figure]]]] = {
    "calls": calls,
    "throughput": throughput,
    "discovery": discovery,
    "fleet": fleet,
    "imports": imports,
}


async def run(names: list[str], rounds: int, quick: bool) -> list[Figure]:
    """Run benchmarks one after the other."""
    figures: list[Figure] = []
    for name in names:
        sys.stderr.write(f"{name} ...\n")
        figures += await BENCHMARKS[name](rounds, quick)
    return figures


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--json", action="store_true", help="print JSON; seconds per operation")
    parser.add_argument("--rounds", type=int, help="interleaved rounds (default 15, quick 5)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, small cases only")
    options = parser.parse_args()
    names: list[str] = options.names or list(BENCHMARKS)
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    logging.disable(logging.WARNING)
    facts = machine()
    figures = anyio.run(run, names, options.rounds or (5 if options.quick else 15), options.quick)
    if options.json:
        print(as_json(facts, figures))
    else:
        show(Console(width=None if sys.stdout.isatty() else 120), facts, figures)


if __name__ == "__main__":
    main()
