"""The page docs/conformance.md: what the official suite says of the client, one row a scenario. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from tests.conformance.suite import ENGINES, Scenario

__all__ = ["PAGE", "page", "table"]

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "conformance.md"
INTRODUCTION = """# Conformance

What the official conformance suite (`@modelcontextprotocol/conformance`) says of the client. Each scenario runs by
itself, with default settings; it passes when the suite finds no failure and no warning and the client ends with exit
code 0. The client under test is `tests/conformance/client.py`; it uses public names only. Rewritten by
`scripts/conformance --write`; continuous integration runs every row with every engine.

- `auto` is the engine of the package, `sdk` the client engine of the official SDK behind the same connection.
- `skipped`: the scenario is about an extension that is not offered, and the suite skips all its checks.
- `http-custom-headers` calls with a null that its own schema forbids, so it runs with `validate_input` off.
- Scenarios about authorization are not among these.

"""

Verdicts = Callable[[Scenario, str], str]


def table(scenarios: Iterable[Scenario], verdict: Verdicts) -> str:
    """Return the table of all scenarios: a row for each, a column for each engine."""
    head = ["suite", "revision", "scenario", *(f"`{engine}`" for engine in ENGINES)]
    rows = [head, ["---"] * len(head)]
    for scenario in scenarios:
        cells = [verdict(scenario, engine) for engine in ENGINES]
        rows.append([scenario.suite, scenario.revision, f"`{scenario.name}`", *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def page(scenarios: Iterable[Scenario], verdict: Verdicts) -> str:
    """Return the whole page."""
    return INTRODUCTION + table(scenarios, verdict)
