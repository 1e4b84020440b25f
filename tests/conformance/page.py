"""The page docs/conformance.md: what the official suite says of the client and of the server, one row a scenario.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.conformance.suite import EXTENSION, Scenario, Verdict, contract, contracts, versions

__all__ = ["PAGE", "client_table", "page", "server_table"]

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "conformance.md"
INTRODUCTION = """# Conformance

The results of the official conformance suite (`@modelcontextprotocol/conformance`) for the client, the server and the
gateway. A scenario passes if the suite finds no failure, no warning and at least one success. The programs under test
are `tests/conformance/client.py` and `tests/conformance/server.py`, which use public names only. `scripts/conformance`
prints each scenario, and `--write` writes this page.

"""
SERVER = """## Server

One server offers what the scenarios need. Each scenario runs alone at every revision that it applies to, and all of
them once more in one process. The skipped scenario has no checks yet.

"""
GATEWAY = """## Gateway

The suite also runs against a gateway (`tests/conformance/gateway.py`) in front of the same server:

"""
GATEWAY_OF_OTHERS = """
Beside it run:

- The suite against a gateway in front of a server of version 2 of the Python SDK: 27 of 27 scenarios of 2025-06-18,
  33 of 33 of 2025-11-25 and 40 of 40 of 2026-07-28 pass (`tests/conformance/test_sdk.py`).
- The SDK's own interaction tests with a gateway between its client and its server: at least 160 of 228 pass.
  `tests/conformance/sdk_losses.txt` has the reasons of the others, mostly cursors and ids.
- Two mixed revisions (`tests/reference/test_bridging.py`): a client of 2025-11-25 passes all 30 scenarios with a server
  that speaks 2026-07-28, and a client of 2026-07-28 passes 20 with a server of version 1 of the SDK.

"""
CLIENT = """## Client

Each scenario runs alone with default settings, and the client has to exit with code 0. Scenarios about authorization
sign in without a person.

- `http-custom-headers` calls a tool with a null that its schema forbids, so it runs with `validate_input` off.
- `2025-03-26-oauth-metadata-backcompat` must fail in 0.1.16: its metadata name a different issuer, which RFC 8414
  forbids. Newer versions of the suite are correct, and pass.

"""

OTHERS = """## Clients and servers of others

These clients list, call, follow progress, read a resource, get a prompt and answer a question, over stdio and HTTP,
with a server of ours (`tests/reference/notes.py`).

| client | 2025-11-25 | 2026-07-28 |
| --- | --- | --- |
| Python SDK (`mcp`) | pass | pass |
| FastMCP | pass | pass |
| TypeScript SDK 1 (`@modelcontextprotocol/sdk`) | pass | - |
| TypeScript SDK 2 (`@modelcontextprotocol/client`) | pass | pass |
| Inspector (`@modelcontextprotocol/inspector --cli`), with `--strict` | pass | pass |

The Inspector also starts the entries that `toolweave serve --install` writes.

"""

Verdicts = Callable[[Scenario], str]


def client_table(scenarios: Iterable[Scenario], verdict: Verdicts) -> str:
    """Return the table of all scenarios for clients: a row for each."""
    rows = [[each.suite, each.revision, f"`{each.name}`", verdict(each)] for each in scenarios]
    return _table(["suite", "revision", "scenario", "verdict"], rows)


def server_table(scenarios: Sequence[Scenario], verdict: Verdicts) -> str:
    """Return the table of all scenarios for servers: a row for each, a column for each version of the suite and
    revision."""
    legs = sorted({(each.suite, each.revision) for each in scenarios}, key=_order)
    told = {(each.name, each.suite, each.revision): verdict(each) for each in scenarios}
    names = list(dict.fromkeys(each.name for each in reversed(scenarios)))[::-1]
    head = ["scenario", *(f"{suite}, {revision}" for suite, revision in legs)]
    rows = [[f"`{name}`", *(told.get((name, *leg), "-") for leg in legs)] for name in names]
    return _table(head, rows)


def tally(scenarios: Iterable[Scenario], verdict: Verdicts) -> str:
    """Return how many distinct scenarios there are, and how many of them passed wherever they ran."""
    verdicts: dict[str, set[Verdict | str]] = {}
    for each in scenarios:
        verdicts.setdefault(each.name, set()).add(verdict(each))
    passed = sum(found == {"pass"} for found in verdicts.values())
    skipped = [f"`{name}`" for name, found in verdicts.items() if found == {"skipped"}]
    told = f"{len(verdicts)} scenarios: {passed} pass wherever they apply"
    return f"{told}, {len(skipped)} are skipped by the suite ({', '.join(skipped)}).\n\n"


def page(client: Sequence[Scenario], of_client: Verdicts, server: Sequence[Scenario], of_server: Verdicts) -> str:
    """Return the whole page."""
    return (
        INTRODUCTION
        + SERVER
        + tally(server, of_server)
        + leg_table(server, of_server)
        + "\n"
        + GATEWAY
        + gateway_table()
        + GATEWAY_OF_OTHERS
        + OTHERS
        + CLIENT
        + leg_table(client, of_client)
    )


def leg_table(scenarios: Sequence[Scenario], verdict: Verdicts) -> str:
    """Return a row for each version of the suite and revision: how many scenarios pass, and which do not."""
    legs = sorted({(each.suite, each.revision) for each in scenarios}, key=_order)
    rows: list[list[str]] = []
    for leg in legs:
        run = [each for each in scenarios if (each.suite, each.revision) == leg]
        others = [f"`{each.name}`: {verdict(each)}" for each in run if verdict(each) != "pass"]
        rows.append([*leg, f"{len(run) - len(others)} of {len(run)}", ", ".join(others)])
    return _table(["suite", "revision", "pass", "others"], rows)


def gateway_table() -> str:
    """Return the table of what passes through a gateway: a row for each revision of the newest suite."""
    newest = versions()[-1]
    counts = [(revision, str(len(contract(newest, revision)))) for revision in contracts(newest)]
    return _table(["revision", "required", "pass through a gateway"], [[name, count, count] for name, count in counts])


def _order(leg: tuple[str, str]) -> tuple[str, bool, str]:
    suite, revision = leg
    return suite, revision == EXTENSION, revision


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)) + "\n"
