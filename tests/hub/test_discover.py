"""`discover_mcp_tools`: one server's tools in one step, chosen and named, over an own or a borrowed connection."""

from __future__ import annotations

import anyio
import pytest

from tests.hub.fleet import BOUND, ToolServer, absent, alive, echo, fault, opened, pid_of
from toolweave import ConfigError, ConnectError, RequestTimeoutError, ToolRegistry, connect_mcp, discover_mcp_tools
from toolweave.connect import ConnectionState
from toolweave.hub import DiscoveredTools


@pytest.mark.requirement("R30", "R28", "R15")
async def test_the_tools_of_a_server_are_there_in_one_step_and_end_with_the_block() -> None:
    with anyio.fail_after(BOUND):
        async with discover_mcp_tools(echo("--page-size", 2)) as tools:
            assert isinstance(tools, DiscoveredTools)
            pid = pid_of(tools.connection)
            assert not tools.borrowed
            assert len(tools) == len(tools.connection.snapshot()) > 20
            assert (await tools["echo"].execute({"text": "hi"})).text == "hi"
    assert not alive(pid)


@pytest.mark.requirement("R30")
async def test_awaited_tools_are_closed_by_their_owner() -> None:
    with anyio.fail_after(BOUND):
        tools = await discover_mcp_tools(echo())
        pid = pid_of(tools.connection)
        registry = ToolRegistry([tools["echo"], tools["add"]])
        assert (await registry.execute("add", {"a": 1, "b": 2})).structured_content == {"sum": 3}
        await tools.close()
        await tools.close()
    assert not alive(pid)
    assert tools.connection.state is ConnectionState.CLOSED


@pytest.mark.requirement("R31")
@pytest.mark.parametrize(
    ("include", "exclude", "names"),
    [
        ((), (), ("a", "b", "c")),
        (("a", "c"), (), ("a", "c")),
        ((), ("a",), ("b", "c")),
        (("a", "b"), ("a", "c"), ("a", "b")),
        (("nobody",), (), ()),
        (("s:b", "s/c"), (), ("b", "c")),
    ],
)
async def test_include_is_a_whitelist_that_wins_and_an_empty_list_filters_nothing(
    include: tuple[str, ...], exclude: tuple[str, ...], names: tuple[str, ...]
) -> None:
    server = ToolServer("s", ["a", "b", "c"])
    with anyio.fail_after(BOUND):
        async with discover_mcp_tools(server.config(), include=include, exclude=exclude) as tools:
            assert tools.names == names


@pytest.mark.requirement("R30", "R31", "R39", "R41", "D5")
async def test_filters_know_original_names_and_the_prefix_is_never_sent() -> None:
    server = ToolServer("s", ["read", "fs_read", "write"])
    with anyio.fail_after(BOUND):
        async with discover_mcp_tools(server.config(), exclude=["write"], tool_prefix="fs_") as tools:
            assert tools.names == ("fs_read", "fs_fs_read")
            assert [(await tool.execute()).text for tool in tools] == ["s|read", "s|fs_read"]
            assert tools["s:read"].name == "fs_read"
    assert server.called == ["read", "fs_read"]


@pytest.mark.requirement("R32")
async def test_the_caller_may_filter_once_more_before_registering() -> None:
    with anyio.fail_after(BOUND):
        async with discover_mcp_tools(echo()) as tools:
            harmless = ToolRegistry(tool for tool in tools if tool.spec.hint("readOnlyHint"))
            assert [tool.name for tool in harmless.list()] == ["echo", "add"]


@pytest.mark.requirement("R21", "R30")
async def test_a_borrowed_connection_is_used_and_never_closed() -> None:
    with anyio.fail_after(BOUND):
        async with connect_mcp(echo(), name="mine") as connection:
            async with discover_mcp_tools(client=connection, include=["echo"], tool_prefix="x-") as tools:
                assert tools.borrowed
                assert tools.connection is connection
                assert tools.names == ("x-echo",)
            await tools.close()
            assert connection.state is ConnectionState.READY
            assert (await tools["x-echo"].execute({"text": "still"})).text == "still"


@pytest.mark.requirement("R21", "R18")
async def test_a_borrowed_hub_connects_once_and_keeps_the_connection() -> None:
    server = {"serverName": "shared", "transport": "stdio", "connection": echo()}
    async with opened({}) as hub:
        async with (
            discover_mcp_tools(server, client=hub, include=["echo"]) as one,
            discover_mcp_tools(server, client=hub, include=["add"]) as two,
        ):
            assert one.connection is two.connection is hub.clients["shared"]
            assert (one.names, two.names) == (("echo",), ("add",))
        assert hub.states() == {"shared": ConnectionState.READY}
        assert (await hub.execute("shared_echo", {"text": "open"})).text == "open"


@pytest.mark.requirement("R36")
async def test_a_lazy_connection_is_opened_to_discover() -> None:
    with anyio.fail_after(BOUND):
        connection = await connect_mcp(echo(), lazy=True)
        assert connection.state is ConnectionState.IDLE
        tools = await discover_mcp_tools(client=connection, include=["echo"])
        assert tools.names == ("echo",)
        await connection.close()


@pytest.mark.requirement("R59", "D14", "D13")
async def test_a_server_that_cannot_start_raises_and_leaves_nothing() -> None:
    with anyio.fail_after(BOUND):
        with pytest.raises(ConnectError, match="toolweave-test-no-such-program"):
            await discover_mcp_tools(absent())
        with pytest.raises(ConnectError, match="no API key"):
            async with discover_mcp_tools(fault("exits_at_once")):
                pass


@pytest.mark.slow
async def test_a_list_that_cannot_be_had_raises_and_ends_an_own_connection_but_no_borrowed_one() -> None:
    mute = fault("hang_list", timeout={"list": 0.3})
    with anyio.fail_after(BOUND):
        with pytest.raises(RequestTimeoutError, match="tools/list"):
            await discover_mcp_tools(mute)
        async with connect_mcp(mute) as connection:
            with pytest.raises(RequestTimeoutError):
                await discover_mcp_tools(client=connection)
            assert connection.state is ConnectionState.DEGRADED


@pytest.mark.requirement("R70")
@pytest.mark.parametrize("config", [None, {"cwd": "/"}, 3])
async def test_what_is_no_server_is_named(config: object) -> None:
    with pytest.raises(ConfigError):
        await discover_mcp_tools(config)


@pytest.mark.requirement("R31")
async def test_a_name_that_the_server_does_not_have_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async with discover_mcp_tools(echo(), include=["echo", "ecko"]) as found:
        assert found.names == ("echo",)
    assert len([message for message in caplog.messages if "include: no tool 'ecko'" in message]) == 1
