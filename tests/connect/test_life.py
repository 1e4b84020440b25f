"""How a connection is opened, shared and closed, and what it says when it is not open."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from tests.connect.targets import ChannelServer, connected, eventually, group_lives, initialized, pid_of, steps_of
from tests.servers.fixtures import echo_command, fault_command, http_server
from tests.servers.raw import post
from toolweave import (
    CallContext,
    ConnectError,
    ConnectionClosedError,
    ErrorKind,
    McpConnection,
    RequestTimeoutError,
    ServerConfig,
    ToolCall,
    ToolResult,
    Toolset,
    connect_mcp,
)
from toolweave.config import server_config
from toolweave.connect import Channel, ConnectionState, StateChanged, register_transport


@pytest.mark.requirement("R15", "R17")
async def test_an_awaited_connection_stays_open_until_it_is_closed() -> None:
    connection = await connect_mcp(echo_command())
    assert connection.state is ConnectionState.READY
    assert "echo" in connection.snapshot().by_name
    group = pid_of(connection)
    for number in range(3):
        assert (await connection.call_tool("echo", {"text": str(number)})).text == str(number)
    assert (await connection.call_tool("state")).structured_content["calls"] == {"echo": 3, "state": 1}
    await connection.close()
    assert connection.state is ConnectionState.CLOSED
    assert not group_lives(group)


@pytest.mark.requirement("R15")
async def test_async_with_closes_on_leaving() -> None:
    async with connect_mcp(echo_command()) as connection:
        group = pid_of(connection)
        assert group_lives(group)
    assert connection.state is ConnectionState.CLOSED
    assert not group_lives(group)


async def test_async_with_closes_when_the_block_raises() -> None:
    groups: list[int] = []

    async def use() -> None:
        async with connect_mcp(echo_command()) as connection:
            groups.append(pid_of(connection))
            raise LookupError

    with pytest.raises(LookupError):
        await use()
    assert not group_lives(groups[0])


@pytest.mark.requirement("D7")
async def test_nothing_happens_before_the_connection_is_awaited_and_it_serves_once() -> None:
    server = ChannelServer(initialized(lambda message: {"result": {"tools": []}}))
    connecting = connect_mcp(server)
    await anyio.lowlevel.checkpoint()
    assert server.conversations == 0
    async with connecting:
        assert server.conversations == 1
    with pytest.raises(RuntimeError, match="used already"):
        await connecting
    with pytest.raises(RuntimeError, match="used already"):
        async with connecting:
            pass


async def test_the_last_to_leave_closes() -> None:
    async with connect_mcp(echo_command()) as connection:
        async with connection as again:
            assert again is connection
        assert connection.state is ConnectionState.READY
    assert connection.state is ConnectionState.CLOSED


@pytest.mark.requirement("R15", "R17", "R21")
async def test_what_was_awaited_stays_open_until_it_is_closed() -> None:
    connection = await connect_mcp(echo_command())
    for _ in range(2):
        async with connection:
            pass
        assert connection.state is ConnectionState.READY
    await connection.close()
    assert connection.state is ConnectionState.CLOSED


async def test_a_connection_to_be_says_what_it_is() -> None:
    connecting = connect_mcp(echo_command(), name="echo")
    assert repr(connecting).startswith(
        "<Connecting, await it, or enter it with `async with`: <McpConnection 'echo' idle"
    )
    async with connecting:
        assert repr(connecting).startswith("<Connecting, used already: <McpConnection 'echo' ready")


async def test_a_closed_connection_is_not_entered_again() -> None:
    connection = await connect_mcp(echo_command())
    await connection.close()
    with pytest.raises(ConnectionClosedError, match="connect again"):
        async with connection:
            pass


async def test_a_connection_is_closed_from_another_task() -> None:
    connection = await connect_mcp(echo_command())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.close)
        tasks.start_soon(connection.close)
    assert connection.state is ConnectionState.CLOSED
    await connection.close()


@pytest.mark.requirement("R22")
async def test_connections_are_closed_in_any_order() -> None:
    first = await connect_mcp(echo_command("--name", "first"))
    second = await connect_mcp(echo_command("--name", "second"))
    await first.close()
    assert (await second.call_tool("echo", {"text": "on"})).text == "on"
    await second.close()


async def test_closing_ends_the_calls_in_flight() -> None:
    connection = await connect_mcp(echo_command())
    results: list[ToolResult] = []

    async def call() -> None:
        results.append(await (await connection.list_tools())["hang"].execute())

    running = anyio.Event()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            connection.on("notification", lambda note: running.set())
            tasks.start_soon(call)
            await eventually(lambda: connection.state is ConnectionState.READY)
            await connection.call_tool("log", {"message": "the call before this one is there"})
            await running.wait()
            await connection.close()
    (result,) = results
    assert result.is_error


@pytest.mark.requirement("R63", "R65")
async def test_a_closed_connection_says_so() -> None:
    connection = await connect_mcp(echo_command(), name="gone")
    tools = await connection.list_tools()
    await connection.close()
    for use in (
        connection.list_tools,
        connection.refresh,
        connection.ping,
        connection.list_resources,
        connection.list_prompts,
        lambda: connection.call_tool("echo", {"text": "x"}),
        lambda: connection.read_resource("test://text"),
    ):
        with pytest.raises(ConnectionClosedError, match="server 'gone': the connection is closed; connect again"):
            await use()

    result = await tools["echo"].execute({"text": "x"})
    assert result.error is not None
    assert result.error.kind is ErrorKind.CLOSED
    assert result.text == "MCP error: server 'gone': the connection is closed; connect again"


@pytest.mark.requirement("R36")
async def test_a_lazy_connection_connects_at_its_first_use() -> None:
    async with connect_mcp(echo_command(), lazy=True) as connection:
        assert connection.state is ConnectionState.IDLE
        assert len(connection.snapshot()) == 0
        assert (await connection.call_tool("echo", {"text": "now"})).text == "now"
        assert connection.state is ConnectionState.READY
        assert "echo" in connection.snapshot().by_name
    assert connection.state is ConnectionState.CLOSED


@pytest.mark.requirement("R36")
async def test_the_first_uses_of_a_lazy_connection_share_one_server() -> None:
    server = ChannelServer(initialized(lambda message: {"result": {"tools": [], "content": []}}))
    async with connect_mcp(server, lazy=True) as connection, anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(connection.call_tool, "anything")
        tasks.start_soon(connection.list_tools)
    assert server.conversations == 1


async def test_a_lazy_connection_executes_a_tool_it_has_not_listed_yet() -> None:
    async with connect_mcp(echo_command(), lazy=True) as connection:
        result = await connection.call(ToolCall(name="echo", arguments={"text": "first"}), CallContext())
    assert result.text == "first"


async def test_a_started_connection_is_usable_without_anyone_waiting_for_it() -> None:
    async with connect_mcp(echo_command(), lazy=True) as connection:
        connection.start()
        await eventually(lambda: connection.state is ConnectionState.READY)


@pytest.mark.requirement("D13", "D14")
@pytest.mark.parametrize("mode", ["dies_at_initialize", "dies_after_initialize", "refuses_initialize", "bogus_version"])
async def test_a_failed_connect_leaves_nothing_and_closing_it_is_allowed(mode: str) -> None:
    groups: list[int] = []
    connection = await connect_mcp(fault_command(mode), lazy=True)
    connection.on("state", lambda change: groups.append(pid_of(connection)) if steps_of(connection) else None)
    with pytest.raises(ConnectError):
        await connection.list_tools()
    assert groups
    assert not any(group_lives(group) for group in groups)
    await connection.close()
    assert connection.state is ConnectionState.CLOSED


@pytest.mark.requirement("D14")
@pytest.mark.parametrize("mode", ["never_answers", "hang_initialize", "hang_list"])
async def test_a_cancelled_connect_leaves_no_process(mode: str) -> None:
    connection = await connect_mcp(fault_command(mode), lazy=True, timeout={"probe": 0.1, "close": 1})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.list_tools)
        wanted = {"never_answers": "discover", "hang_initialize": "initialize", "hang_list": "list tools"}[mode]
        await eventually(lambda: wanted in steps_of(connection))
        tasks.cancel_scope.cancel()
    group = pid_of(connection)
    await connection.close()
    assert not group_lives(group)


@pytest.mark.requirement("D14")
async def test_a_cancelled_await_tears_everything_down() -> None:
    connecting = connect_mcp(fault_command("never_answers"))
    connection = connecting._target

    async def connect() -> None:
        await connecting

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connect)
        await eventually(lambda: "discover" in steps_of(connection))
        assert group_lives(pid_of(connection))
        tasks.cancel_scope.cancel()
    assert not group_lives(pid_of(connection))
    assert connection.state is ConnectionState.CLOSED


async def test_closing_while_connecting_ends_the_connecting_too() -> None:
    connection = await connect_mcp(fault_command("never_answers"), lazy=True)
    failures: list[BaseException] = []

    async def use() -> None:
        try:
            await connection.list_tools()
        except ConnectionClosedError as exc:
            failures.append(exc)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(use)
            await eventually(lambda: "discover" in steps_of(connection))
            await connection.close()
    assert len(failures) == 1
    assert not group_lives(pid_of(connection))


async def test_a_connection_closed_before_its_first_use_never_connects() -> None:
    connection = await connect_mcp(echo_command(), lazy=True)
    await connection.close()
    with pytest.raises(ConnectionClosedError):
        await connection.list_tools()
    assert steps_of(connection) == []


async def test_a_listener_may_close_the_connection() -> None:
    connection = await connect_mcp(echo_command(), lazy=True)
    async with anyio.create_task_group() as tasks:

        def ready(change: StateChanged) -> None:
            if change.state is ConnectionState.READY:
                tasks.start_soon(connection.close)

        connection.on("state", ready)
        connection.start()
        await eventually(lambda: connection.state is ConnectionState.CLOSED)


async def test_a_connection_made_by_hand_is_opened_by_entering_it_and_may_fail_to() -> None:
    async with McpConnection(server_config(echo_command())) as connection:
        assert connection.state is ConnectionState.READY
    connection = McpConnection(server_config(["no-such-program-anywhere"]))
    with pytest.raises(ConnectError, match="was not found"):
        async with connection:
            pass
    assert connection.state is ConnectionState.CLOSED


async def test_a_transport_that_does_not_end_is_left_behind_after_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    entered = anyio.Event()

    @asynccontextmanager
    async def sticky(config: ServerConfig) -> AsyncGenerator[Channel, None]:
        async with ChannelServer(initialized(lambda message: {"result": {"tools": []}})) as channel:
            yield channel
            entered.set()
            await anyio.sleep_forever()

    monkeypatch.setattr("toolweave.connect._supervisor._TEARDOWN_SECONDS", 0.2)
    register_transport("sticky", sticky)
    with anyio.fail_after(10):
        connection = await connect_mcp({"transport": "sticky"}, timeout={"close": 0.1})
        await connection.close()
    assert entered.is_set()
    assert connection.state is ConnectionState.CLOSED


@pytest.mark.slow
async def test_a_handshake_that_takes_too_long_is_given_up_at_its_deadline() -> None:
    with pytest.raises(RequestTimeoutError) as late:
        await connect_mcp(fault_command("never_answers"), name="sleepy", timeout={"connect": 0.5, "close": 1})
    assert late.value.seconds == 0.5
    assert str(late.value) == (
        "server 'sleepy': it did not finish connecting within 0.5 s; raise timeout.connect if it is only slow"
    )


async def test_a_connection_is_a_toolset_and_shows_no_secret() -> None:
    command, *args = echo_command()
    target = {"command": command, "args": [*args, "--", "--token=hunter2hunter2"], "env": {"API_KEY": "hunter3hunter3"}}
    async with connected(target, name="shown") as connection:
        assert isinstance(connection, Toolset)
        assert repr(connection).startswith("<McpConnection 'shown' ready ")
        assert "hunter" not in repr(connection) + repr(connection.config)


async def test_an_http_connection_ends_its_session_on_closing() -> None:
    with http_server("--version", "2025-11-25") as url:
        async with connected(url) as connection:
            session = {"mcp-session-id": "session-1"}
            assert (await anyio.to_thread.run_sync(partial(post, url, "ping", headers=session)))[0] == 200
            assert connection.state is ConnectionState.READY
        assert (await anyio.to_thread.run_sync(partial(post, url, "ping", headers=session)))[0] == 404


@pytest.mark.slow
async def test_a_transport_that_hangs_as_it_is_left_is_given_up_and_dialled_again() -> None:
    class Sticky(ChannelServer):
        async def __aexit__(self, *exc: object) -> None:
            try:
                if self.conversations == 1:
                    await anyio.sleep_forever()
            finally:
                await super().__aexit__(*exc)

    server = Sticky(initialized(lambda message: {"result": {"tools": []}} if "id" in message else None))
    async with connected(server, 40, timeout={"close": 0.1}) as connection:
        server.hang_up()
        await eventually(lambda: connection.restarts == 1 and connection.state is ConnectionState.READY, 30)
        assert server.conversations == 2
