"""Runs every scenario of the suite, one by one: `python -m tests.conformance [--json] [--write] [--engine ENGINE]`.

Prints the table, or all there is to know as JSON; the exit code is 1 when a scenario did not come out as it must.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from tests.conformance.page import PAGE, page, table
from tests.conformance.suite import ENGINES, Outcome, Scenario, play, required, scenarios

__all__: list[str] = []

AT_ONCE = 2
Run = tuple[Scenario, str]


def main() -> int:
    """Read the command line, run, print."""
    parser = argparse.ArgumentParser(prog="scripts/conformance", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    parser.add_argument("--write", action="store_true", help="renew docs/conformance.md")
    parser.add_argument("--engine", choices=ENGINES, help="run this engine only")
    options = parser.parse_args()
    if options.write and options.engine:
        parser.error("--write needs every engine")
    found = scenarios()
    engines = (options.engine,) if options.engine else ENGINES
    outcomes = run_all([(scenario, engine) for scenario in found for engine in engines])

    def verdict(scenario: Scenario, engine: str) -> str:
        outcome = outcomes.get((scenario, engine))
        return outcome.verdict if outcome is not None else ""

    if options.json:
        listed = [{**asdict(run[0]), "engine": run[1], **asdict(outcome)} for run, outcome in outcomes.items()]
        print(json.dumps(listed, indent=2))
    else:
        print(table(found, verdict), end="")
    if options.write:
        PAGE.write_text(page(found, verdict), encoding="utf-8")
    wrong = {run: outcome for run, outcome in outcomes.items() if outcome.verdict != required(run[0])}
    for (scenario, engine), outcome in wrong.items():
        print(f"\n{scenario} with engine {engine}: {outcome.verdict}\n{outcome.said}", file=sys.stderr)
    return 1 if wrong else 0


def run_all(runs: list[Run]) -> dict[Run, Outcome]:
    """Run scenarios, a few at a time."""

    def run(wanted: Run) -> Outcome:
        with tempfile.TemporaryDirectory() as results:
            return play(*wanted, Path(results))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(runs, pool.map(run, runs), strict=True))


if __name__ == "__main__":
    sys.exit(main())
