"""The tables of the page about repairs, row by row against the code."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.source import modules
from tests.connect.targets import ChannelServer, Json, connected, initialized
from tests.docs.repairs import REPAIRS, as_received
from tests.docs.repairs import RESULTS as SENT
from toolweave._repairs import Repair
from toolweave.config import ServerConfig
from toolweave.connect._repairs import NULL_ERROR
from toolweave.errors import ProtocolError
from toolweave.models import OpenAICompatibleModel
from toolweave.openapi import OpenApiOptions
from toolweave.protocol.lenient_results import RESULT_REPAIRS, STRUCTURE_AS_TEXT, TEXT_AS_STRUCTURE
from toolweave.providers import ToolRules
from toolweave.schema import Validator
from toolweave.schema.fitting import as_fitted
from toolweave.serve._server import ServerAbout
from toolweave.tools.mcp import tool_result

PAGE = Path(__file__).parents[2] / "docs" / "forgiveness.md"
CELL = re.compile(r"`([^`]*)`")


def rows(title: str) -> list[list[str]]:
    """Return the cells of the rows of the first table of a name, code without its marks."""
    part = PAGE.read_text(encoding="utf-8").partition(f"<!-- generated: {title} -->\n")[2]
    lines = part.partition("|---|---|---|\n")[2].partition("\n<!-- /generated -->")[0].splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines]
    return [[found[1] if (found := CELL.fullmatch(cell.strip())) else cell.strip() for cell in row] for row in cells]


def answering(sent: str, **members: Any) -> Callable[[Json], Json | None]:
    """Return the script of a server whose tool has this result."""

    def script(message: Json) -> Json | None:
        match message["method"]:
            case "tools/list":
                return {"result": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}}
            case "tools/call":
                return {"result": json.loads(sent), **members}
            case _:
                return None

    return script


def entry(script: Callable[[Json], Json | None], *, repair_messages: bool) -> dict[str, Any]:
    """Return the entry of a config for a server with this script."""
    server = ChannelServer(initialized(script))
    return {"transport": "inprocess", "server": server, "repair_messages": repair_messages}


def declared_repairs(module: str) -> Iterator[Repair]:
    """Yield the rows that a module holds."""
    if f"{module}.".startswith("toolweave.") and "Repair(" in source_of(module):
        yield from (one for one in vars(importlib.import_module(module)).values() if isinstance(one, Repair))


def source_of(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


IMAGE = {"content": [{"type": "image", "data": "data:image/png;base64,AAAA", "mimeType": "image/png"}]}
MODEL_IMAGE = {"content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}
RESULTS = rows("results as read")
ARGUMENTS = rows("arguments as sent")


def test_the_page_has_its_tables() -> None:
    assert (len(RESULTS), len(ARGUMENTS)) == (16, 10)


def test_every_row_of_the_code_is_on_the_page_with_its_limit_and_its_switch() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = [one for named in REPAIRS.values() for one in named]

    assert [one for one in rows if f"| {one.given} | {one.read_as} | {one.limit} | {one.switch} |" not in page] == []
    assert [one for one in rows if not (one.limit and one.switch)] == []


def test_every_repair_in_the_code_is_in_a_table() -> None:
    declared = {one for module in modules() for one in declared_repairs(module.name)}

    assert declared == {one for named in REPAIRS.values() for one in named}


def test_the_examples_show_every_repair_of_a_result_that_is_read_by_itself() -> None:
    notes: list[str] = []
    for sent in [*SENT, IMAGE, MODEL_IMAGE]:
        tool_result(as_received(sent), server="s", note=notes.append)

    read_with_a_schema = {TEXT_AS_STRUCTURE.problem, STRUCTURE_AS_TEXT.problem}
    shown = {one.problem.format("is_error", "isError") for one in RESULT_REPAIRS}
    assert set(notes) == shown - read_with_a_schema


SWITCHES: Mapping[str, Collection[str]] = {
    '"(\\w+)": ': ServerConfig.__struct_fields__,
    r"create_mcp_server\((\w+)=": ServerAbout.__annotations__,
    r"ToolRules\((\w+)=": inspect.signature(ToolRules).parameters,
    r"OpenApiOptions\((\w+)=": inspect.signature(OpenApiOptions).parameters,
    r"`(\w+)=`": inspect.signature(OpenAICompatibleModel).parameters,
}


@pytest.mark.parametrize("row", [one for named in REPAIRS.values() for one in named], ids=lambda row: row.given)
def test_a_switch_is_an_option_or_nothing_for_a_reason(row: Repair) -> None:
    named = [(one, known) for form, known in SWITCHES.items() for one in re.findall(form, row.switch)]

    assert bool(named) != row.switch.startswith("nothing: ")
    assert all(one in known for one, known in named)


@pytest.mark.parametrize("row", RESULTS, ids=lambda row: row[0])
async def test_a_result_is_an_error_if_its_owner_wants_no_repairs(row: list[str]) -> None:
    async with connected(entry(answering(row[0]), repair_messages=False)) as connection:
        with pytest.raises(ProtocolError, match="'repair_messages': true"):
            await connection.call_tool("t")


@pytest.mark.parametrize("is_repaired", [True, False])
async def test_null_beside_a_result_is_read_unless_its_owner_wants_no_repairs(is_repaired: bool) -> None:
    sent = json.dumps({"content": [{"type": "text", "text": "made"}]})
    script = answering(sent, error=None)
    async with connected(entry(script, repair_messages=is_repaired)) as connection:
        if is_repaired:
            assert (await connection.call_tool("t")).text == "made"
            assert connection.problems == (NULL_ERROR.problem,)
        else:
            with pytest.raises(ProtocolError, match="'error': null"):
                await connection.call_tool("t")


@pytest.mark.parametrize("row", RESULTS, ids=lambda row: row[0])
async def test_a_result_is_read_as_the_page_says(row: list[str]) -> None:
    sent, text, failed = row

    async with connected(ChannelServer(initialized(answering(sent)))) as connection:
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
