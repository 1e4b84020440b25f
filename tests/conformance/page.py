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

What the official conformance suite (`@modelcontextprotocol/conformance`) says of the client and of the server. A
scenario passes when the suite finds no failure and no warning and at least one success. What is tested is
`tests/conformance/client.py` and `tests/conformance/server.py`; both use public names only. Rewritten by
`scripts/conformance --write`; continuous integration runs every row.

- `skipped`: the suite itself has no checks in the scenario yet (`tasks-status-notifications`).
- Scenarios about authorization (`auth/`) sign in without a person: a user agent that follows the authorization URL.
- One scenario must fail: in `2025-03-26-oauth-metadata-backcompat` of 0.1.16 the metadata name another issuer than the
  one they were asked of, which RFC 8414 says to refuse. The newer version has that mended, and passes.

"""
SERVER = """## Server

One server offers everything the scenarios ask for. Each scenario runs by itself at every revision that it applies to;
`-` where it does not. Every leg is run a second time in one go (`--suite all`), and so are the scenarios that each
revision requires (`--requirements`).

"""
GATEWAY = """## Gateway

The suite run against a gateway (`tests/conformance/gateway.py`) in front of the same server: whatever passes directly
passes through it. Continuous integration runs the scenarios that each revision requires, the extensions beside them,
and all scenarios of each revision.

The suite also runs before a server by version 2 of the Python SDK, which speaks both eras and asks its clients
differently in each. A gateway with default settings speaks to it in the era of each caller: 27 of 27 scenarios of
2025-06-18, 33 of 33 of 2025-11-25 and 40 of 40 of 2026-07-28 pass (`tests/conformance/test_sdk.py`).

The interaction tests of that SDK run between its own client and server with a gateway in the middle, over Streamable
HTTP and with default settings. Of 228, which all pass without a gateway, at least 160 pass through it. The others are
listed with their reasons in `tests/conformance/sdk_losses.txt`. Most are about cursors and unlisted names, since a
gateway makes pages itself and finds things by their lists, or about ids, tokens and identities of one hop.

Two legs cross the eras. A client of 2025-11-25 passes all 30 scenarios before a server that is spoken to in 2026-07-28.
And a client of 2026-07-28 passes the 18 that both revisions require of a server, and two that ask the client, before a
server by version 1 of the Python SDK, which knows no revision after 2025-11-25 (`tests/reference/test_bridging.py`).

"""
CLIENT = """## Client

Each scenario runs by itself, with default settings, and the client has to end with exit code 0.

- `http-custom-headers` calls with a null that its own schema forbids, so it runs with `validate_input` off.

"""

OTHERS = """## Clients and servers of others

Beside the suite, continuous integration lets the clients of others use a server of ours (`tests/reference/notes.py`),
over stdio and HTTP: they list, call, get progress, read a resource, get a prompt and answer a question. Their versions
are pinned in `tests/reference/package.json` and `tests/reference/fastmcp.txt`.

| client | 2025-11-25 | 2026-07-28 |
| --- | --- | --- |
| Python SDK (`mcp`) | pass | pass |
| FastMCP | pass | pass |
| TypeScript SDK 1 (`@modelcontextprotocol/sdk`) | pass | - |
| TypeScript SDK 2 (`@modelcontextprotocol/client`) | pass | pass |
| Inspector (`@modelcontextprotocol/inspector --cli`), with `--strict` | pass | pass |

The Inspector also starts what `toolweave serve --install` writes for Claude Desktop, Cursor and VS Code, out of these
editors' own files. The other way round, our client uses the reference servers from npm and PyPI.

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
    served = SERVER + tally(server, of_server) + server_table(server, of_server)
    return (
        INTRODUCTION
        + served
        + "\n"
        + GATEWAY
        + gateway_table()
        + "\n"
        + OTHERS
        + CLIENT
        + client_table(client, of_client)
    )


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
