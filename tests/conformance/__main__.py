"""Runs every scenario of the suite, one by one: `python -m tests.conformance [--json] [--write] [--side SIDE]`.

Prints the tables, or all there is to know as JSON; the exit code is 1 when a scenario did not come out as it must.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

from tests.conformance.page import PAGE, client_table, page, server_table
from tests.conformance.server_process import serving
from tests.conformance.suite import Outcome, Scenario, Side, play, play_server, required, scenarios

__all__: list[str] = []

AT_ONCE = 2
Run = tuple[Scenario, Side]
"""A scenario and the side that it is for."""


def main() -> int:
    """Read the command line, run, print."""
    parser = argparse.ArgumentParser(prog="scripts/conformance", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    parser.add_argument("--write", action="store_true", help="renew docs/conformance.md")
    parser.add_argument("--side", choices=["client", "server"], help="run this side only")
    parser.add_argument("--scenario", metavar="NAME", help="run the scenarios only whose name begins so")
    options = parser.parse_args()
    if options.write and (options.side or options.scenario):
        parser.error("--write needs both sides and every scenario")
    begins = options.scenario or ""
    clients = [] if options.side == "server" else [one for one in scenarios("client") if one.name.startswith(begins)]
    servers = [] if options.side == "client" else [one for one in scenarios("server") if one.name.startswith(begins)]
    outcomes = run_clients(clients) | run_servers(servers)

    def verdict(scenario: Scenario, side: Side) -> str:
        outcome = outcomes.get((scenario, side))
        return outcome.verdict if outcome is not None else ""

    of_client, of_server = partial(verdict, side="client"), partial(verdict, side="server")

    if options.json:
        listed = [{**asdict(run[0]), "side": run[1], **asdict(outcome)} for run, outcome in outcomes.items()]
        print(json.dumps(listed, indent=2))
    else:
        print(server_table(servers, of_server) if servers else "", client_table(clients, of_client) if clients else "")
    if options.write:
        PAGE.write_text(page(clients, of_client, servers, of_server), encoding="utf-8")
    return report({run: outcome for run, outcome in outcomes.items() if outcome.verdict != required(run[0])})


def report(wrong: dict[Run, Outcome]) -> int:
    """Tell what did not come out as it must; returns the exit code."""
    for (scenario, side), outcome in wrong.items():
        print(f"\n{scenario}, {side}: {outcome.verdict}\n{outcome.said}", file=sys.stderr)
    return 1 if wrong else 0


def run_clients(wanted: list[Scenario]) -> dict[Run, Outcome]:
    """Run scenarios for clients, a few at a time."""

    def run(scenario: Scenario) -> tuple[Run, Outcome]:
        with tempfile.TemporaryDirectory() as results:
            return (scenario, "client"), play(scenario, Path(results))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(pool.map(run, wanted))


def run_servers(wanted: list[Scenario]) -> dict[Run, Outcome]:
    """Run scenarios for servers, the legs side by side, each with a server of its own."""
    legs: dict[tuple[str, str], list[Scenario]] = {}
    for scenario in wanted:
        legs.setdefault((scenario.suite, scenario.revision), []).append(scenario)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return {run: outcome for leg in pool.map(run_leg, legs.values()) for run, outcome in leg}


def run_leg(leg: list[Scenario]) -> list[tuple[Run, Outcome]]:
    """Run scenarios one after the other against one server."""

    def outcomes(url: str, folder: Path) -> Iterator[tuple[Run, Outcome]]:
        for number, scenario in enumerate(leg):
            results = folder / str(number)
            results.mkdir()
            yield (scenario, "server"), play_server(scenario, url, results)

    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "log") as url:
        return list(outcomes(url, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
