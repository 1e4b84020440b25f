"""The table of docs/features.md that compares gateways: what each documents, and the test of each of our features.

`rows.json` has the cells, `sources.json` the pages that were read and when. A cell about another gateway says what its
documentation says, and "not documented" where no page was found that says it. A cell about Toolweave with "yes" names
a test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

__all__ = ["GATEWAYS", "GatewayCell", "GatewayRow", "Sources", "read_gateway_rows", "read_sources", "table"]

FOLDER = Path(__file__).parent
GATEWAYS: Mapping[str, str] = {
    "agentgateway": "agentgateway",
    "contextforge": "ContextForge",
    "docker": "Docker MCP Gateway",
}
"""The other gateways, in the order of the table."""


class GatewayCell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a gateway has of a feature.

    Attributes:
        outcome: Whether it has it.
        note: What it is limited to, or how.
        source: The page that says so, by its name in `sources.json`.
        test: For ours, the test that shows it, or the folder of its tests.
    """

    outcome: Literal["yes", "partly", "no", "not documented"]
    note: str = ""
    source: str = ""
    test: str = ""


class GatewayRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A feature.

    Attributes:
        feature: The feature.
        ours: What we have of it.
        agentgateway: What agentgateway has.
        contextforge: What ContextForge has.
        docker: What Docker's gateway has.
    """

    feature: str
    ours: GatewayCell
    agentgateway: GatewayCell
    contextforge: GatewayCell
    docker: GatewayCell

    @property
    def others(self) -> Mapping[str, GatewayCell]:
        """The cells of the other gateways."""
        return {name: getattr(self, name) for name in GATEWAYS}


class Sources(msgspec.Struct, frozen=True):
    """The pages that were read.

    Attributes:
        read: The day.
        pages: The address of each page by its name.
    """

    read: str
    pages: Mapping[str, str]


def read_gateway_rows() -> Sequence[GatewayRow]:
    """Return the rows."""
    return msgspec.convert(_content("rows.json"), list[GatewayRow])


def read_sources() -> Sources:
    """Return the pages that were read."""
    return msgspec.convert(_content("sources.json"), Sources)


def _content(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def table() -> Iterator[str]:
    """Yield the lines of the table."""
    sources = read_sources()
    yield f"By the documentation of each, read on {sources.read}:\n\n"
    yield f"| | Toolweave | {' | '.join(GATEWAYS.values())} |\n|{'---|' * (len(GATEWAYS) + 2)}\n"
    for row in read_gateway_rows():
        cells = [_ours(row.ours), *(_theirs(cell, sources) for cell in row.others.values())]
        yield f"| {row.feature} | {' | '.join(cells)} |\n"


def _ours(cell: GatewayCell) -> str:
    text = _text(cell)
    if not cell.test:
        return text
    return f"{text} (`{cell.test.partition('::')[0].rpartition('/')[2]}`)"


def _theirs(cell: GatewayCell, sources: Sources) -> str:
    if not cell.source:
        return cell.outcome
    outcome = f"[{cell.outcome}]({sources.pages[cell.source]})"
    return f"{outcome}: {cell.note}" if cell.note else outcome


def _text(cell: GatewayCell) -> str:
    return f"{cell.outcome}: {cell.note}" if cell.note else cell.outcome
