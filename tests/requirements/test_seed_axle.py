"""The design "MCP Adapter" of Axle: its examples and its table of errors, in Python, on real servers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from tests.hub.fleet import BOUND, ToolServer, absent, alive, echo, eventually, fault, pid_of
from tests.servers.fixtures import http_server
from toolweave import (
    CallContext,
    ConnectError,
    ConnectionClosedError,
    ErrorKind,
    McpConnection,
    ProtocolError,
    ServerConfig,
    connect_mcp,
)
from toolweave.config import McpConfig, McpHttpConfig, McpStdioConfig
from toolweave.errors import ToolExecutionError
from toolweave.tools import as_toolset


def stdio(*options: object) -> McpStdioConfig:
    """Return the config of the design's first example, with our server."""
    entry = echo(*options)
    return {"transport": "stdio", "command": entry["command"], "args": entry["args"]}


@pytest.mark.requirement("R1", "R9", "R15", "R16", "C27", "D3")
async def test_connecting_over_stdio_listing_calling_and_closing() -> None:
    config: McpStdioConfig = {**stdio(), "env": {"API_KEY": "for-the-server"}}
    with anyio.fail_after(BOUND):
        mcp = await connect_mcp(config)
        assert isinstance(mcp, McpConnection)
        assert mcp.protocol_version is not None
        tools = await mcp.list_tools()
        seen = await tools["env"].execute({"names": ["API_KEY", "PATH"]})
        pid = pid_of(mcp)
        await mcp.close()
    assert seen.structured_content["API_KEY"] == "for-the-server"
    assert seen.structured_content["PATH"]
    assert not alive(pid)


@pytest.mark.requirement("R1", "R10", "R26")
async def test_connecting_over_streamable_http_with_headers() -> None:
    with http_server("--require-header", "Authorization:Bearer t0ken") as url, anyio.fail_after(BOUND):
        config: McpHttpConfig = {"transport": "http", "url": url, "headers": {"Authorization": "Bearer t0ken"}}
        async with connect_mcp(config) as mcp:
            assert (await mcp.call_tool("echo", {"text": "hi"})).text == "hi"


@pytest.mark.requirement("R22", "R48")
async def test_tools_of_two_connections_are_combined_by_the_caller_and_each_is_closed_alone() -> None:
    configs: list[McpConfig] = [stdio("--name", "fs"), stdio("--name", "git")]
    with anyio.fail_after(BOUND):
        fs, git = [await connect_mcp(config) for config in configs]

        def local(text: str) -> str:
            """Return the text backwards."""
            return text[::-1]

        tools = as_toolset([local, *await fs.list_tools(prefix="fs"), *await git.list_tools(prefix="git")])
        names = [spec.name for spec in tools.snapshot()]
        assert names[0] == "local"
        assert {"fs_echo", "git_echo"} <= set(names)
        assert {type(spec.input_schema) for spec in tools.snapshot()} == {dict}
        await fs.close()
        assert (await git.call_tool("echo", {"text": "open"})).text == "open"
        await git.close()


@pytest.mark.requirement("R38", "R41", "D5")
async def test_a_prefix_names_the_tools_and_the_server_hears_its_own_names() -> None:
    server = ToolServer("s", ["read_file", "write_file"])
    with anyio.fail_after(BOUND):
        async with connect_mcp(server.config()) as mcp:
            tools = await mcp.list_tools(prefix="fs")
            assert tools.names == ("fs_read_file", "fs_write_file")
            await tools["fs_read_file"].execute({"path": "/"})
    assert server.called == ["read_file"]


@pytest.mark.requirement("R53", "R55", "R56", "C17", "D11")
async def test_text_is_joined_line_by_line_and_what_is_no_text_leaves_a_visible_note() -> None:
    blocks = [{"type": "text", "text": "line 1"}, {"type": "text", "text": "line 2"}]
    server = ToolServer("s", ["lines"], results={"lines": {"content": blocks}})
    with anyio.fail_after(BOUND):
        async with connect_mcp(server.config()) as mcp, connect_mcp(echo()) as other:
            lines = await mcp.call_tool("lines")
            mixed = await other.call_tool("mixed")
    assert lines.text == "line 1\nline 2"
    assert [block.type for block in mixed.content] == ["text", "image", "audio", "resource_link", "resource"]
    assert mixed.text.split("\n")[0] == "all of them"
    assert "[image: image/png, " in mixed.text
    assert "text (test://text)" in mixed.text


@pytest.mark.requirement("R59")
@pytest.mark.parametrize(("entry", "said"), [(absent(), "no-such-program"), (fault("exits_at_once"), "no API key")])
async def test_row_one_a_server_that_fails_to_start_raises_with_a_description(
    entry: Mapping[str, Any], said: str
) -> None:
    with anyio.fail_after(BOUND), pytest.raises(ConnectError, match=said) as caught:
        await connect_mcp(entry, name="broken")
    assert "server 'broken'" in str(caught.value)


@pytest.mark.requirement("R60", "R24")
async def test_row_two_a_crash_in_mid_session_reaches_the_tool_error_flow() -> None:
    with anyio.fail_after(BOUND):
        async with connect_mcp(echo(), restart="never") as mcp:
            tools = await mcp.list_tools()
            crashed = await tools["crash"].execute()
            with pytest.raises(ToolExecutionError, match="exit code 7"):
                await tools["echo"].call({"text": "?"})
    assert crashed.is_error
    assert "crashed on purpose" in crashed.text


@pytest.mark.requirement("R61", "C2")
async def test_row_three_a_tool_that_the_server_does_not_know_is_a_tool_execution_error() -> None:
    with anyio.fail_after(BOUND):
        async with connect_mcp(echo()) as mcp:
            tool = (await mcp.list_tools())["echo"]
            await mcp.call_tool("shrink", {"name": "echo"})  # gone at the server, still in our hands
            result = await tool.execute({"text": "?"})
            with pytest.raises(ToolExecutionError):
                await tool.call({"text": "?"})
            with pytest.raises(ProtocolError, match="Unknown tool"):
                await mcp.call_tool("nobody")
    assert result.is_error


@pytest.mark.requirement("R62", "R45", "D12")
async def test_row_four_a_schema_that_cannot_be_used_warns_and_lets_everything_through(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with anyio.fail_after(BOUND), caplog.at_level(logging.WARNING, logger="toolweave"):
        async with connect_mcp(fault("invalid_schema")) as mcp:
            tools = await mcp.list_tools()
            odd = next(tool for tool in tools if tool.name not in ("echo", "add"))
            assert (await odd.execute({"anything": 1})).text == "called"
            assert (await tools["echo"].execute({"text": "fine"})).text == "fine"
    assert any(odd.name in record.getMessage() for record in caplog.records)


@pytest.mark.requirement("R63", "D13")
async def test_row_five_after_closing_listing_raises_and_a_tool_gives_an_error_result() -> None:
    with anyio.fail_after(BOUND):
        mcp = await connect_mcp(echo())
        tool = (await mcp.list_tools())["echo"]
        await mcp.close()
        with pytest.raises(ConnectionClosedError):
            await mcp.list_tools()
        with pytest.raises(ConnectionClosedError):
            await mcp.call_tool("echo", {"text": "?"})
        result = await tool.execute({"text": "?"})
    assert result.require_error().kind is ErrorKind.CLOSED


@pytest.mark.requirement("R34", "C8", "R16")
async def test_the_list_is_asked_for_once_and_again_after_a_refresh() -> None:
    with anyio.fail_after(BOUND):
        async with connect_mcp(echo("--version", "2025-11-25")) as mcp:
            for _ in range(3):
                await mcp.list_tools()
            once = (await mcp.call_tool("state")).structured_content["methods"].count("tools/list")
            await mcp.refresh()
            await mcp.list_tools(prefix="x")
            twice = (await mcp.call_tool("state")).structured_content["methods"].count("tools/list")
    assert (once, twice) == (1, 2)


@pytest.mark.requirement("R15")
async def test_entering_again_opens_nothing_twice_and_the_configs_name_beats_the_servers() -> None:
    with anyio.fail_after(BOUND):
        async with connect_mcp(ServerConfig(**echo("--name", "what-it-says"), name="ours")) as mcp:
            pid = pid_of(mcp)
            async with mcp:
                await mcp.open()
                assert pid_of(mcp) == pid
            assert mcp.name == "ours"
            assert mcp.server_info["name"] == "what-it-says"
            assert {tool.server for tool in await mcp.list_tools()} == {"ours"}


@pytest.mark.requirement("D6", "D18")
async def test_an_error_result_is_recoverable_and_one_without_text_still_says_something() -> None:
    server = ToolServer("s", ["mute"], results={"mute": {"content": [], "isError": True}})
    with anyio.fail_after(BOUND):
        async with connect_mcp(server.config()) as mcp, connect_mcp(echo()) as other:
            mute = await mcp.call_tool("mute")
            failed = await other.call_tool("fail", {"message": "file not found"})
            assert (await other.call_tool("echo", {"text": "go on"})).text == "go on"
    assert mute.is_error
    assert mute.require_error().message == "MCP tool execution error"
    assert (failed.is_error, failed.text) == (True, "file not found")
    assert failed.require_error().kind is ErrorKind.EXECUTION_FAILED


async def test_cancelling_a_call_reaches_the_server_under_the_calls_own_id() -> None:
    with anyio.fail_after(BOUND):
        async with connect_mcp(echo()) as mcp:
            tool = (await mcp.list_tools(prefix="x"))["x_hang"]
            with anyio.CancelScope() as scope:
                await tool.execute(ctx=CallContext(on_progress=lambda _: scope.cancel()))

            async def heard() -> bool:
                return len((await mcp.call_tool("state")).structured_content["cancelled"]) == 1

            await eventually(heard)


@pytest.mark.slow
async def test_cancelling_while_the_tools_are_discovered_leaves_nothing() -> None:
    connecting = connect_mcp(fault("hang_list"))
    with anyio.move_on_after(0.5) as scope:
        await connecting
    assert scope.cancelled_caught
