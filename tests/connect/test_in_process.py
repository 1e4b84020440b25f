"""Servers in this process: the SDK's servers and transports, channels, registered transports, and their mistakes."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.connect.targets import MODERN, ChannelServer, Json, connected, initialized
from tests.servers.fixtures import echo_command, running, sdk_command
from tests.servers.sdk_server import high_level, low_level
from toolweave import (
    ConfigError,
    ConnectError,
    ConnectionLostError,
    Hub,
    McpConnection,
    Progress,
    ProtocolError,
    ServerConfig,
    ToolRegistry,
    connect_mcp,
    create_mcp_server,
)
from toolweave.config import register_transport_name
from toolweave.connect import Channel, memory_channels, register_transport


async def use_high_level(connection: McpConnection) -> None:
    assert connection.protocol_version == MODERN
    assert connection.server_info["name"] == "sdk-high"
    assert connection.instructions == "Ask for a forecast."
    tools = await connection.list_tools()
    assert tools.names == ("forecast", "add", "steps", "refuse", "boom")
    forecast = await tools["forecast"].execute({"city": {"name": "Oslo"}, "days": 2})
    assert forecast.structured_content["degrees"] == [0.0, 1.0]
    assert (await tools["forecast"].execute({"city": {"name": "Oslo"}, "days": 9})).is_error
    seen: list[Progress] = []
    result = await connection.call_tool("steps", {"count": 3}, on_progress=seen.append)
    assert result.text == "done"
    assert [(progress.progress, progress.message) for progress in seen] == [(n, f"step {n}") for n in (1, 2, 3)]
    refused = await tools["refuse"].execute({"reason": "closed on Sundays"})
    assert "closed on Sundays" in refused.text
    assert "secret detail" not in (await tools["boom"].execute()).text
    assert [resource.uri for resource in await connection.list_resources()] == ["sdk://greeting"]
    assert [content.text for content in await connection.read_resource("sdk://item/4")] == ["item 4"]
    assert (await connection.get_prompt("ask", {"topic": "fjords"})).messages[0].content.render() == (
        "Tell me about fjords."
    )


async def use_low_level(connection: McpConnection) -> None:
    tools = await connection.list_tools()
    assert tools.names == ("echo", "rows")
    assert (await tools["echo"].execute({"text": "hi"})).text == "hi"
    assert (await tools["rows"].execute()).structured_content == {"rows": [1, 2, 3]}
    with pytest.raises(ProtocolError, match="Unknown tool: nothing"):
        await connection.call_tool("nothing")


@pytest.mark.filterwarnings("ignore:The logging capability is deprecated")  # in the server, which logs
@pytest.mark.requirement("R13")
async def test_the_sdks_high_level_server_is_used_in_process() -> None:
    async with connected({"transport": "inprocess", "server": high_level()}) as connection:
        await use_high_level(connection)


@pytest.mark.requirement("R13")
async def test_the_sdks_low_level_server_is_used_in_process() -> None:
    async with connected(low_level(), name="low") as connection:
        assert repr(connection) == "<McpConnection 'low' ready in-process Server>"
        await use_low_level(connection)


@pytest.mark.slow
async def test_the_sdks_servers_are_used_over_stdio() -> None:
    async with connected(sdk_command("--kind", "high"), 60) as connection:
        await use_high_level(connection)


@pytest.mark.slow
async def test_the_sdks_servers_are_used_over_http() -> None:
    with running(sdk_command("--http", 0), seconds=60) as port:
        async with connected(f"http://127.0.0.1:{port}/mcp") as connection:
            await use_high_level(connection)
    with running(sdk_command("--kind", "low", "--http", 0), seconds=60) as port:
        async with connected(f"http://127.0.0.1:{port}/mcp") as connection:
            await use_low_level(connection)


@pytest.mark.requirement("R13")
async def test_a_transport_of_the_sdk_is_used_as_it_is() -> None:
    command, *args = echo_command()
    async with connected(stdio_client(StdioServerParameters(command=command, args=args))) as connection:
        assert (await connection.call_tool("echo", {"text": "hi"})).text == "hi"


async def test_a_transport_of_the_sdk_that_ends_is_lost() -> None:
    command, *args = echo_command()
    transport = stdio_client(StdioServerParameters(command=command, args=args))
    async with connected(transport, restart="never") as connection:
        with pytest.raises(ConnectionLostError, match="the connection ended"):
            await connection.call_tool("crash")


@pytest.mark.requirement("R13", "R112")
async def test_a_registered_transport_gets_the_config_and_its_options() -> None:
    configs: list[ServerConfig] = []

    def answer(message: Json) -> Json | None:
        return {"result": {"tools": [{"name": "coo"}]}}

    @asynccontextmanager
    async def loft(config: ServerConfig) -> AsyncGenerator[Channel, None]:
        configs.append(config)
        async with ChannelServer(initialized(answer)) as channel:
            yield channel

    register_transport("loft", loft)
    async with connected({"transport": "loft", "url": "pigeon://home", "perch": 3}, name="bird") as connection:
        assert [spec.name for spec in connection.snapshot()] == ["coo"]
    (config,) = configs
    assert (config.name, config.url, config.options["perch"]) == ("bird", "pigeon://home", 3)


@pytest.mark.requirement("R67")
async def test_a_transport_that_was_only_named_is_an_error_of_connecting() -> None:
    register_transport_name("named-only")
    with pytest.raises(ConfigError, match="'named-only' is not registered; call register_transport first"):
        await connect_mcp({"transport": "named-only"})


async def test_a_transport_that_raises_is_an_error_that_names_the_server() -> None:
    @asynccontextmanager
    async def broken(config: ServerConfig) -> AsyncGenerator[Channel, None]:
        raise LookupError("the loft is empty")
        yield

    register_transport("broken-loft", broken)
    with pytest.raises(ConnectError, match="server 'bird': LookupError: the loft is empty"):
        await connect_mcp({"transport": "broken-loft"}, name="bird")


async def test_a_channel_whose_peer_is_gone_ends_the_connection() -> None:
    server = ChannelServer(initialized(lambda message: {"result": {"tools": []}}))
    target = {"transport": "inprocess", "server": server}
    async with connected(target, restart="never") as connection:
        server.hang_up()
        with pytest.raises(ConnectionLostError):
            await connection.call_tool("x")


async def test_the_ends_of_a_memory_channel_tell_each_other_what_happened() -> None:
    ours, theirs = memory_channels()
    assert isinstance(ours, Channel)
    await ours.send(b"{}")
    assert await theirs.receive() == b"{}"
    theirs.close()
    with pytest.raises(EOFError, match="closed"):
        await ours.receive()
    with pytest.raises(BrokenPipeError, match="closed"):
        await ours.send(b"{}")
    ours.close()


BATCH = (
    b'[{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"one"}},'
    b'5,{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"two"}}]'
)
ODD_MESSAGES: list[bytes] = [
    b"[]",
    b"[1]",
    b"5",
    b'"text"',
    b"{",
    b"\xff\xfe",
    b'{"jsonrpc":"2.0"}',
    b'{"jsonrpc":"2.0","id":true,"result":{}}',
    b'{"jsonrpc":"2.0","id":99999,"result":{}}',
    b'{"jsonrpc":"2.0","id":"nobody","error":{"code":1,"message":"x"}}',
    b'{"jsonrpc":"2.0","method":5}',
    b'{"jsonrpc":"2.0","method":"notifications/x","params":[1]}',
    b'{"jsonrpc":"2.0","method":"notifications/x","params":5}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[1]}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}',
    b"[" * 100_000,
]


async def test_messages_that_are_none_are_passed_over_and_batches_are_taken_apart() -> None:
    notes: list[Any] = []

    def answer(message: Json) -> Json | None:
        if message["method"] == "tools/call":
            for odd in ODD_MESSAGES:
                server.send(odd)
            server.send(BATCH)
        return {"result": {"tools": [], "content": [{"type": "text", "text": "still here"}]}}

    server = ChannelServer(initialized(answer))
    async with connected({"transport": "inprocess", "server": server}) as connection:
        connection.on("notification", lambda note: notes.append(note[1].get("data")))
        for _ in range(2):
            assert (await connection.call_tool("x")).text == "still here"
        assert connection.restarts == 0
    assert [note for note in notes if note] == ["one", "two"] * 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b'{"jsonrpc":"2.0","id":ID,"result":{"content":[}', "answer"),
        (b'{"jsonrpc":"2.0","id":ID,"result":"\xff"}', "answer"),
        (b'{"jsonrpc":"2.0","id":ID}', "answer"),
        (b'{"jsonrpc":"2.0","id":ID,"error":{"code":"x","message":5}}', "server"),
        (b'{"id":ID,"jsonrpc":"2.0","result":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "deeply|answer"),
    ],
)
async def test_an_answer_that_cannot_be_read_fails_its_call_at_once(answer: bytes, words: str) -> None:
    def script(message: Json) -> Json | None:
        if message["method"] != "tools/call":
            return {"result": {"tools": []}}
        server.send(answer.replace(b"ID", str(message["id"]).encode()))
        return None

    server = ChannelServer(initialized(script))
    async with connected({"transport": "inprocess", "server": server}) as connection:
        with pytest.raises(ProtocolError, match=words):
            await connection.call_tool("x", timeout=10)
        await connection.list_tools()


@pytest.mark.parametrize("made", [lambda: Hub({}), ToolRegistry, lambda: connect_mcp({"command": "any"})])
def test_what_offers_its_tools_already_is_no_server_to_connect_to(made: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match=r"connect_mcp takes a server \(its config, URL, .*use it as it is, or serve"):
        connect_mcp(made())


@pytest.mark.parametrize("seconds", [0, 0.001, 0.01])
async def test_a_client_that_is_cancelled_while_it_connects_leaves_no_open_stream(seconds: float) -> None:
    server = create_mcp_server(name="s", version="1")
    with anyio.move_on_after(seconds):
        async with connect_mcp(server):
            pass
    gc.collect()  # a stream that was not closed warns here, and a warning is an error

    async with connect_mcp(server) as connection:
        assert connection.server_info["name"] == "s"
