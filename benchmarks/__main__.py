"""`scripts/bench [NAME ...]`: measure, print, and say which targets are met."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from benchmarks.agents import agents
from benchmarks.calls import calls, extremes
from benchmarks.catalog import catalog
from benchmarks.clients import CLIENTS
from benchmarks.crew import TRANSPORTS
from benchmarks.discovery import discovery, memory
from benchmarks.durable import durable
from benchmarks.fleet import fleet
from benchmarks.gateway import gateway
from benchmarks.gateway_growth import gateway_growth
from benchmarks.growth import growth
from benchmarks.imports import imports
from benchmarks.measure import Figure, machine
from benchmarks.peers import install
from benchmarks.post import post
from benchmarks.report import as_json, as_markdown, figures_of, show
from benchmarks.scan import scan
from benchmarks.serving import serving
from benchmarks.settings import Settings
from benchmarks.sign_in import sign_in
from benchmarks.targets import judge

BENCHMARKS: dict[str, Callable[[Settings], list[Figure]]] = {
    "calls": calls,
    "extremes": extremes,
    "discovery": discovery,
    "memory": memory,
    "fleet": fleet,
    "imports": imports,
    "post": post,
    "serving": serving,
    "gateway": gateway,
    "gateway_growth": gateway_growth,
    "growth": growth,
    "catalog": catalog,
    "scan": scan,
    "sign_in": sign_in,
    "agents": agents,
    "durable": durable,
}
DEFAULT_TRANSPORTS = ("stdio", "http")
PAGE_MARKS = ("<!-- ratios -->\n", "<!-- /ratios -->\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    out = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    out.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    out.add_argument("--json", action="store_true", help="print JSON; seconds per operation")
    out.add_argument("--quick", action="store_true", help="fewer rounds, small cases only")
    out.add_argument("--rounds", type=int, help="interleaved rounds (default 9, quick 3)")
    out.add_argument("--only", action="append", default=[], metavar="TEXT", help="cases whose name holds TEXT")
    out.add_argument("--client", action="append", default=[], metavar="CLIENT", help=", ".join(CLIENTS))
    out.add_argument(
        "--transport", action="append", default=[], choices=TRANSPORTS, help=f"default: {', '.join(DEFAULT_TRANSPORTS)}"
    )
    out.add_argument("--peers", action="store_true", help="install the peers that are missing, each on its own")
    out.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    out.add_argument("--write", type=Path, metavar="PAGE", help="put the tables of what was run into a page")
    out.add_argument("--first", type=Path, metavar="JSON", help="an earlier run: a page has what both agree on")
    return out


def write_page(page: Path, *runs: list[Figure]) -> None:
    """Replace the tables of the benchmarks that were run, between the marks of a page; the others stay."""
    before, _, rest = page.read_text(encoding="utf-8").partition(PAGE_MARKS[0])
    known, _, after = rest.partition(PAGE_MARKS[1])
    tables = by_title(known) | by_title(as_markdown(*runs))
    text = "\n\n".join(tables.values())
    page.write_text(f"{before}{PAGE_MARKS[0]}{text}\n{PAGE_MARKS[1]}{after}", encoding="utf-8")


def by_title(text: str) -> dict[str, str]:
    """Return the tables of a page, each with its heading, by the heading."""
    tables = [f"### {one.strip()}" for one in f"\n{text}".split("\n### ")[1:]]
    return {one.partition("\n")[0]: one for one in tables}


def main() -> None:
    """Read the command line, measure, print."""
    parsing = parser()
    options = parsing.parse_args()
    names: list[str] = options.names or list(BENCHMARKS)
    for wrong in (set(names) - set(BENCHMARKS), set(options.client) - set(CLIENTS)):
        if wrong:
            known = ", ".join((*BENCHMARKS, *CLIENTS))
            parsing.error(f"no benchmark or client {', '.join(sorted(wrong))}; there are {known}")
    if options.peers:
        install()
    settings = Settings(
        rounds=options.rounds or (3 if options.quick else 9),
        quick=options.quick,
        only=options.only,
        clients=options.client,
        transports=options.transport or DEFAULT_TRANSPORTS,
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the servers must not outlive us
    facts = machine()
    figures: list[Figure] = []
    interrupted = False
    for name in names:
        sys.stderr.write(f"{name} ...\n")
        try:
            figures += BENCHMARKS[name](settings)
        except KeyboardInterrupt:
            sys.stderr.write("interrupted: what is complete follows\n")
            interrupted = True
            break
    if options.write is not None and not interrupted:
        first = [] if options.first is None else [figures_of(options.first.read_text(encoding="utf-8"))]
        write_page(options.write, figures, *first)
    if options.json:
        print(as_json(facts, figures))
    else:
        show(Console(width=None if sys.stdout.isatty() else 150), facts, figures)
    if interrupted or (options.check and not all(verdict.met for verdict in judge(figures))):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
