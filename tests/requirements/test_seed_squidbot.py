"""The design "MCP Tool Adapter" of squidbot: its config example, its data flow and its five test cases."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import anyio
import pytest

from tests.hub.fleet import BOUND, ToolServer, absent, alive, echo, fault, opened, pid_of
from toolweave import ConfigError, ToolRegistry, ToolResult, connect_mcp, connect_mcp_servers, load_config
from toolweave.connect import ConnectionState

EXAMPLE = """
{"tools": {
  "mcp_servers": {
    "github": {
      "transport": "stdio",
      "command": "uvx",
      "args": ["mcp-server-github"],
      "env": {"GITHUB_TOKEN": "..."}
    },
    "myapi": {
      "transport": "http",
      "url": "http://localhost:8080/mcp"
    }
  }
}}
"""


@runtime_checkable
class ToolPort(Protocol):
    """What squidbot's agent asks of a tool; satisfied by shape, not by inheritance."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> Any: ...  # a JSON Schema

    execute: Callable[..., Awaitable[Any]]


@pytest.mark.requirement("R4")
def test_the_example_config_loads_word_for_word(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(EXAMPLE)
    for loaded in (load_config(file), load_config(json.loads(EXAMPLE))):
        github, myapi = loaded.servers["github"], loaded.servers["myapi"]
        assert (github.transport, github.command, list(github.args)) == ("stdio", "uvx", ["mcp-server-github"])
        assert github.env_values() == {"GITHUB_TOKEN": "..."}
        assert (myapi.transport, myapi.url) == ("http", "http://localhost:8080/mcp")
        assert (github.cwd, github.url, myapi.command) == (None, "", "")
        assert not loaded.errors


@pytest.mark.requirement("R4")
def test_the_transport_is_stdio_unless_it_is_said() -> None:
    loaded = load_config({"mcp_servers": {"a": {"command": "uvx", "args": []}}})
    assert loaded.servers["a"].transport == "stdio"


@pytest.mark.requirement("R17", "R50")
async def test_connecting_gives_one_adapter_per_tool_and_holds_the_connection_until_shutdown() -> None:
    with anyio.fail_after(BOUND):
        connection = await connect_mcp(echo(), name="files")
        pid = pid_of(connection)
        adapters = await connection.list_tools(prefix="files")
        registry = ToolRegistry(adapters)
        for _ in range(3):
            assert (await registry.execute("files_echo", {"text": "same process"})).text == "same process"
            assert pid_of(connection) == pid
        assert alive(pid)
        await connection.close()
    assert {adapter.server for adapter in adapters} == {"files"}
    assert not alive(pid)


@pytest.mark.requirement("R108", "R50", "R29")
async def test_case_one_an_adapter_has_the_servers_name_description_and_parameters() -> None:
    with anyio.fail_after(BOUND):
        async with connect_mcp(echo(), name="s") as connection:
            adapter = (await connection.list_tools())["echo"]
    assert isinstance(adapter, ToolPort)
    assert inspect.iscoroutinefunction(adapter.execute)
    assert adapter.name == "echo"
    assert adapter.description == "Return the text."
    assert adapter.parameters["properties"]["text"] == {"type": "string", "description": "What to return"}


@pytest.mark.requirement("R108", "R55")
async def test_case_two_execute_returns_a_result_on_success() -> None:
    blocks = [{"type": "text", "text": "first"}, {"type": "text", "text": "second"}]
    server = ToolServer("s", ["read"], results={"read": {"content": blocks, "isError": False}})
    with anyio.fail_after(BOUND):
        async with connect_mcp(server.config()) as connection:
            result = await (await connection.list_tools())["read"].execute({"path": "/"})
    assert isinstance(result, ToolResult)
    assert (result.text, result.is_error) == ("first\nsecond", False)


@pytest.mark.requirement("R108", "R65", "R66", "C2")
async def test_case_three_execute_returns_an_error_result_when_the_session_fails() -> None:
    with anyio.fail_after(BOUND):
        async with connect_mcp(echo(), name="s", restart="never") as connection:
            tools = await connection.list_tools()
            refused = await tools["rpc_error"].execute({"message": "no"})
            lost = await tools["crash"].execute()
            after = await tools["echo"].execute({"text": "?"})
    for result in (refused, lost, after):
        assert result.is_error
        assert result.text.startswith("MCP error: server 's'")


@pytest.mark.requirement("R108", "R67", "R8")
def test_case_four_an_unknown_transport_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="unknown transport 'carrier'") as caught:
        connect_mcp({"transport": "carrier", "command": "x"}, name="odd")
    assert isinstance(caught.value, ConfigError)
    assert caught.value.server == "odd"


@pytest.mark.requirement("R108", "R28", "D28")
async def test_case_five_every_tool_of_a_server_is_registered() -> None:
    async with opened({"many": echo("--tools", 120, "--page-size", 50)}) as hub:
        registry = ToolRegistry(hub.tools)
        generated = [tool.name for tool in registry.list() if tool.original_name.startswith("tool_")]
        assert len(generated) == 120
        assert (await registry.execute("many_tool_00120", {"text": "last"})).text == '{"text": "last"}'


@pytest.mark.requirement("R64", "D15")
async def test_the_gateway_goes_on_with_a_warning_when_a_server_cannot_be_reached(
    caplog: pytest.LogCaptureFixture,
) -> None:
    servers = {"gone": absent(), "first": echo(), "second": echo()}
    with anyio.fail_after(BOUND), caplog.at_level(logging.WARNING, logger="toolweave.hub"):
        async with connect_mcp_servers({"tools": {"mcp_servers": servers}}) as connections:
            registry = ToolRegistry(connections.tools)  # equal tools of two servers kill nothing
            assert (await registry.execute("second_echo", {"text": "hi"})).text == "hi"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "server 'gone'" in caplog.records[0].getMessage()


@pytest.mark.requirement("R66", "R24")
async def test_a_disconnect_in_mid_session_is_an_error_result_and_is_not_repaired_when_that_is_not_wished() -> None:
    async with opened({"s": fault("dies_mid_call", restart="never")}) as hub:
        first = await hub.tools["s_echo"].execute({"text": "?"})
        second = await hub.tools["s_echo"].execute({"text": "?"})
        assert hub.states()["s"] is ConnectionState.FAILED
        assert hub.clients["s"].restarts == 0
    assert first.is_error
    assert second.is_error
    assert "segmentation fault, on purpose" in second.text


@pytest.mark.requirement("D16")
async def test_arguments_named_like_the_registrys_own_parameters_arrive() -> None:
    arguments = {"tool_name": "a", "tool_call_id": "b", "self": "c"}
    async with opened({"s": echo()}) as hub:
        result = await ToolRegistry(hub.tools).execute("s_args", arguments)
    assert result.structured_content["arguments"] == arguments
