"""The design of Axiom MCP, what concerns tools and their callers: definitions, answers, errors, several clients."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import anyio
import mcp_types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from pydantic import Field

from tests.hub.fleet import BOUND, echo
from tests.servers.fixtures import http_server
from toolweave import (
    CallContext,
    ErrorKind,
    McpConnection,
    Progress,
    ProtocolError,
    ToolError,
    ToolRegistry,
    connect_mcp,
    tool,
)


@tool(title="Spawn subtasks", annotations={"readOnlyHint": False})
def spawn(
    parent_prompt: Annotated[str, Field(description="What to split up", min_length=1)],
    count: Annotated[int, Field(ge=1, le=5)] = 2,
) -> dict[str, int]:
    """Split a prompt into subtasks."""
    if parent_prompt == "impossible":
        raise ToolError("it cannot be split", code="EXECUTION_FAILED")
    return {"subtasks": count}


@pytest.mark.requirement("R109")
def test_unit_a_definition_is_what_the_specification_calls_a_tool() -> None:
    spec = spawn.spec
    wire = {
        "name": spec.name,
        "title": spec.title,
        "description": spec.description,
        "inputSchema": dict(spec.input_schema),
        "annotations": dict(spec.annotations or {}),
    }
    parsed = mcp_types.Tool.model_validate(wire)
    assert (parsed.name, parsed.title, parsed.description) == (
        "spawn",
        "Spawn subtasks",
        "Split a prompt into subtasks.",
    )
    assert parsed.input_schema["additionalProperties"] is False
    assert parsed.input_schema["required"] == ["parent_prompt"]
    assert parsed.input_schema["properties"]["parent_prompt"]["description"] == "What to split up"
    assert mcp_types.Tool.model_validate({**wire, "outputSchema": spec.output_schema}).output_schema is not None


@pytest.mark.requirement("R109", "C10")
async def test_unit_the_answers_of_a_tool_to_good_bad_and_failing_calls() -> None:
    registry = ToolRegistry([spawn])
    good = await registry.execute("spawn", {"parent_prompt": "build it", "count": 3})
    unknown_member = await registry.execute("spawn", {"parent_prompt": "build it", "extra": 1})
    out_of_range = await registry.execute("spawn", {"parent_prompt": "build it", "count": 9})
    failed = await registry.execute("spawn", {"parent_prompt": "impossible"})
    unknown = await registry.execute("spawm", {})
    assert (good.is_error, good.structured_content, good.text) == (False, {"subtasks": 3}, '{"subtasks": 3}')
    kinds = [result.require_error().kind for result in (unknown_member, out_of_range, failed, unknown)]
    assert kinds == [
        ErrorKind.INVALID_INPUT,
        ErrorKind.INVALID_INPUT,
        ErrorKind.EXECUTION_FAILED,
        ErrorKind.NOT_FOUND,
    ]
    assert "extra" in unknown_member.text
    assert "count" in out_of_range.text
    assert failed.require_error().code == "EXECUTION_FAILED"
    assert "Traceback" not in failed.text


@pytest.mark.requirement("R9")
async def test_integration_over_stdio() -> None:
    with anyio.fail_after(BOUND):
        async with connect_mcp(echo(), name="s") as connection:
            await exercise(connection)


@pytest.mark.requirement("R10")
@pytest.mark.parametrize("answers", ["auto", "sse"])
async def test_integration_over_http_with_answers_that_stream_when_they_must_or_always(answers: str) -> None:
    with http_server("--answers", answers) as url, anyio.fail_after(BOUND):
        async with connect_mcp(url, name="s") as connection:
            await exercise(connection)


async def test_several_clients_see_the_same_tools_and_get_the_same_answers() -> None:
    command = echo()
    parameters = StdioServerParameters(command=command["command"], args=command["args"])
    with anyio.fail_after(BOUND):
        async with connect_mcp(echo()) as ours, Client(stdio_client(parameters)) as reference:
            listed = {one.name: one for one in (await reference.list_tools()).tools}
            mine = {one.name: one for one in await ours.list_tools()}
            assert mine.keys() == listed.keys()
            assert {name: dict(one.input_schema) for name, one in mine.items()} == {
                name: one.input_schema for name, one in listed.items()
            }
            theirs = await reference.call_tool("add", {"a": 1, "b": 2})
            assert (await ours.call_tool("add", {"a": 1, "b": 2})).structured_content == theirs.structured_content


@pytest.mark.requirement("R111", "R1")
@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("toolweave.connect", ("connect_mcp", "McpConnection", "register_transport")),  # index, connection, client
        ("toolweave.hub", ("connect_mcp_servers", "discover_mcp_tools")),  # service, create, mcp-client
        ("toolweave.tools", ("Tool", "ToolRegistry", "ToolResult")),  # tools, tool
        ("toolweave.schema", ("schema_to_model",)),  # schema
        ("toolweave.config", ("ServerConfig", "normalize_config", "merge_config")),  # types, config
    ],
)
def test_each_module_of_the_designs_has_a_home(module: str, names: tuple[str, ...]) -> None:
    home = importlib.import_module(module)
    assert set(names) <= set(home.__all__)
    assert all(getattr(home, name) for name in names)


async def exercise(connection: McpConnection) -> None:
    """Do what one does with an inspector: list, call rightly, wrongly and what fails, watch the progress."""
    tools = await connection.list_tools()
    for one in tools:
        definition: dict[str, Any] = dict(one.raw)
        assert mcp_types.Tool.model_validate(definition).name == one.original_name
        assert one.input_schema["type"] == "object"
    assert (await tools["echo"].execute({"text": "valid"})).text == "valid"
    assert (await tools["add"].execute({"a": 1, "b": 2})).structured_content == {"sum": 3}
    assert (await tools["echo"].execute({"text": 1})).require_error().kind is ErrorKind.INVALID_INPUT
    assert (await tools["echo"].execute({})).require_error().kind is ErrorKind.INVALID_INPUT
    assert (await tools["fail"].execute({"message": "on purpose"})).text == "on purpose"
    refused = (await tools["rpc_error"].execute({"code": -32050, "message": "refused"})).require_error()
    assert (refused.kind, refused.code) == (ErrorKind.PROTOCOL, -32050)
    with pytest.raises(ProtocolError) as caught:
        await connection.call_tool("nobody")
    assert caught.value.code == -32602
    seen: list[Progress] = []
    slow = await tools["slow"].execute({"seconds": 0.03, "steps": 3}, CallContext(on_progress=seen.append))
    assert slow.text == "done in 3 steps"
    assert [(one.progress, one.total) for one in seen] == [(1, 3), (2, 3), (3, 3)]
