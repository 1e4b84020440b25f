"""Definitions that JSON cannot express: each costs at most itself, and the list reaches the client."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from tests.serve.carriers import EACH_CARRIER, EACH_ERA, connected
from tests.serve.raw import raw_client
from toolweave.errors import SchemaError
from toolweave.gateway import create_gateway
from toolweave.serve import McpServer, create_mcp_server, prompt, resource
from toolweave.tools import BaseToolset, CallContext, ToolCall, ToolResult, ToolsChanged, ToolSnapshot, ToolSpec, tool

_LISTS = (("tools/list", "tools"), ("prompts/list", "prompts"), ("resources/list", "resources"))


class Reading(BaseModel):
    value: float = math.nan


class Range(BaseModel):
    bounds: list[float] = [-math.inf, 1.0]


def wait(seconds: float = math.inf) -> str:
    return str(seconds)


def below(limit: Annotated[float, Field(description="The upper bound.")] = -math.inf) -> str:
    return str(limit)


def between(limits: tuple[float, float] = (-math.inf, math.inf)) -> str:
    return str(limits)


def read() -> Reading:
    return Reading()


def take(values: Range) -> str:
    return str(values.bounds)


def take_or_not(values: Range = Range()) -> str:  # noqa: B008  # a default that JSON cannot express
    return str(values.bounds)


def good() -> str:
    return "fine"


class Foreign(BaseToolset):
    """Tools of another server, of which one has a definition that is not JSON."""

    def __init__(self, **members: Any) -> None:
        self._snapshot = ToolSnapshot(
            [ToolSpec(name="odd", server="s", **members), ToolSpec(name="fine", server="s")],
        )

    def snapshot(self) -> ToolSnapshot:
        return self._snapshot

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        return ToolResult.of(call.name)

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Callable[[], None]:
        return lambda: None


@EACH_CARRIER
@pytest.mark.parametrize("function", [wait, below, between, read, take, take_or_not])
async def test_a_default_that_is_not_finite_is_left_out_of_the_schema_and_the_tool_stays(
    function: Callable[..., Any], carrier: str, era: str
) -> None:
    server = create_mcp_server(name="s", version="1", tools=[function, good])
    async with connected(server, carrier, era) as connection:
        tools = await connection.list_tools()
        assert tools.names == (function.__name__, "good")
        own = await connection.call_tool(function.__name__, {"values": {}} if function is take else {})
        assert not own.is_error
        assert (await connection.call_tool("good", {})).text == "fine"


async def test_a_parameter_with_a_default_that_is_not_finite_stays_optional() -> None:
    schema = tool(wait).spec.input_schema
    assert schema["properties"] == {"seconds": {"type": "number"}}
    assert "required" not in schema


@EACH_ERA
@pytest.mark.parametrize(
    "members",
    [
        {"input_schema": {"type": "object", "properties": {"a": {"default": math.inf}}}},
        {"output_schema": {"type": "object", "properties": {"a": {"maximum": math.nan}}}},
        {"meta": {"example.org/a": object()}},
        {"annotations": {"example.org/a": math.inf}},
    ],
    ids=["input", "output", "meta", "annotations"],
)
async def test_a_foreign_definition_that_is_not_json_costs_only_itself(
    members: Mapping[str, Any], era: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = create_mcp_server(name="s", version="1", tools=Foreign(**members))
    async with connected(server, "inprocess", era) as connection:
        assert (await connection.list_tools()).names == ("fine",)
    assert "tool 'odd' is not listed, because its definition is not JSON" in caplog.text


async def test_a_tool_of_ours_whose_definition_is_not_json_is_refused_when_the_server_is_made() -> None:
    odd = tool(good, name="odd", meta={"example.org/a": math.inf})
    with pytest.raises(SchemaError, match="tool 'odd': its definition is not JSON"):
        create_mcp_server(name="s", version="1", tools=[odd])


@pytest.mark.parametrize(
    "make", [prompt(meta={"a": math.inf}), resource("notes://a", annotations={"priority": math.nan})]
)
def test_a_prompt_or_a_resource_whose_definition_is_not_json_is_refused_where_it_is_made(make: Any) -> None:
    with pytest.raises(SchemaError, match="its definition is not JSON"):
        make(good)


class OddResources:
    """A source of resources, of which one has a definition that is not JSON."""

    async def resources(self) -> list[dict[str, Any]]:
        return [{"uri": "a:1", "name": "odd", "annotations": {"priority": math.nan}}, {"uri": "a:2", "name": "fine"}]

    async def templates(self) -> list[dict[str, Any]]:
        return []

    async def read(self, uri: str, ctx: CallContext) -> dict[str, Any] | None:
        return None

    def subscribe(self, listener: Callable[[Any], None]) -> Callable[[], None]:
        return lambda: None


@EACH_ERA
async def test_a_resource_of_a_source_whose_definition_is_not_json_costs_only_itself(
    era: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = create_mcp_server(name="s", version="1", resources=[OddResources()])
    with caplog.at_level(logging.ERROR):
        async with connected(server, "inprocess", era) as connection:
            assert [one.uri for one in await connection.list_resources()] == ["a:2"]
    assert "'a:1' of resources is not listed" in caplog.text


def many(count: int) -> McpServer:
    tools = [tool(good, name=f"tool_{number}") for number in range(count)]
    server = create_mcp_server(name="s", version="1", tools=tools)
    for number in range(count):
        server.prompts.add(prompt(name=f"prompt_{number}")(good))
        server.resources.add(resource(f"notes://{number}")(good))
    return server


@EACH_ERA
@pytest.mark.parametrize("relayed", [False, True], ids=["server", "gateway"])
async def test_a_list_of_150_entries_is_one_page_for_clients_that_read_only_the_first(relayed: bool, era: str) -> None:
    offered: Any = create_gateway({"s": {"server": many(150)}}) if relayed else many(150)
    async with raw_client(offered, era) as client:
        for method, member in _LISTS:
            first = (await client.ask(client.request(method)))["result"]
            assert "nextCursor" not in first
            assert len(first[member]) == 150
