"""The tables of the page about repairs, row by row against the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.connect.targets import ChannelServer, Json, connected, initialized
from toolweave.schema import Validator
from toolweave.schema._fitting import as_fitted

PAGE = Path(__file__).parents[2] / "docs" / "forgiveness.md"
CELL = re.compile(r"`([^`]*)`")


def rows(title: str) -> list[list[str]]:
    """Return the cells of the rows of the table below a title, code without its marks."""
    part = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| `")]
    cells = [line.strip("| ").split(" | ") for line in lines]
    return [[found[1] if (found := CELL.fullmatch(cell.strip())) else cell.strip() for cell in row] for row in cells]


RESULTS = rows("Results of tools")
ARGUMENTS = rows("Arguments")


def test_the_page_has_its_tables() -> None:
    assert (len(RESULTS), len(ARGUMENTS)) == (12, 10)


@pytest.mark.anyio
@pytest.mark.parametrize("row", RESULTS, ids=lambda row: row[0])
async def test_a_result_is_read_as_the_page_says(row: list[str]) -> None:
    sent, text, failed = row

    def script(message: Json) -> Json | None:
        match message["method"]:
            case "tools/list":
                return {"result": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}}
            case "tools/call":
                return {"result": json.loads(sent)}
            case _:
                return None

    async with connected(ChannelServer(initialized(script))) as connection:
        result = await connection.call_tool("t")
        assert (result.text, result.is_error) == (text, failed == "yes")
        assert connection.problems


@pytest.mark.parametrize("row", ARGUMENTS, ids=lambda row: f"{row[0]} {row[1]}")
def test_an_argument_is_sent_as_the_page_says(row: list[str]) -> None:
    schema, given, sent = row
    whole: dict[str, Any] = {"type": "object", "properties": {"x": json.loads(schema)}}
    arguments = {"x": json.loads(given)}

    made = as_fitted(whole, arguments)

    if sent == "an error":
        assert made == arguments
        assert not Validator(whole).is_valid(made)
    else:
        assert json.dumps(made) == json.dumps({"x": json.loads(sent)})
        assert Validator(whole).is_valid(made)
