"""The design "MCP Module Architecture" of AIDK: its configs, its client and service, its programmatic examples."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from pydantic import BaseModel, ValidationError

from tests.hub.fleet import BOUND, ToolServer, absent, alive, echo, eventually, next_change, opened, pid_of
from tests.servers.fixtures import http_server
from toolweave import (
    CallContext,
    ConfigError,
    ConnectError,
    ErrorKind,
    Hub,
    McpConnection,
    ServerConfig,
    ToolCall,
    ToolRegistry,
    ToolResult,
    connect_mcp,
    connect_mcp_servers,
    discover_mcp_tools,
)
from toolweave.config import McpFullConfig, merge_config, normalize_config
from toolweave.connect import Channel, ConnectionState, StateChanged, register_transport
from toolweave.schema import schema_to_model
from toolweave.tools import enhanced, filtered, renamed, transformed


def full(name: str, **more: Any) -> McpFullConfig:
    """Return the design's full config for a stdio server."""
    return {"serverName": name, "transport": "stdio", "connection": echo(), **more}  # type: ignore[typeddict-item]


@pytest.mark.requirement("R2", "R3", "R6")
async def test_the_short_and_the_full_config_reach_the_same_server() -> None:
    short = echo()
    normal = normalize_config("filesystem", short)
    assert normal == {"serverName": "filesystem", "transport": "stdio", "connection": short}
    assert normalize_config("filesystem", normal) == normal
    assert normalize_config("api", {"transport": "sse", "connection": {"url": "https://api.example.com/mcp"}}) == {
        "serverName": "api",
        "transport": "sse",
        "connection": {"url": "https://api.example.com/mcp"},
    }
    async with opened({"filesystem": short, "full": normal}) as hub:
        assert {name: client.name for name, client in hub.clients.items()} == {
            "filesystem": "filesystem",
            "full": "full",  # the key counts, whatever the entry says
        }
    with anyio.fail_after(BOUND):
        for config in (short, normal, full("filesystem")):
            async with connect_mcp(config, name="filesystem") as connection:
                assert connection.name == "filesystem"
                assert (await connection.call_tool("echo", {"text": "hi"})).text == "hi"


@pytest.mark.requirement("R7", "R27", "R25", "D4")
async def test_a_runtime_config_is_laid_over_the_base_and_its_token_reaches_the_server() -> None:
    with http_server("--require-bearer", "user-token") as url, anyio.fail_after(BOUND):
        base = {"serverName": "api", "transport": "http", "connection": {"url": url}}
        before = {**base, "connection": dict(base["connection"])}  # type: ignore[call-overload]
        merged = merge_config(base, {"auth": {"type": "bearer", "token": "user-token"}})
        assert base == before
        assert merge_config(base) is base
        with pytest.raises(ConnectError):
            await connect_mcp(base)
        async with connect_mcp(merged) as connection:
            seen = (await connection.call_tool("seen_headers")).structured_content["headers"]
    assert {key.lower(): value for key, value in seen.items()}["authorization"] == "Bearer user-token"


@pytest.mark.requirement("R27", "R25")
async def test_a_token_that_changes_at_run_time_is_asked_for_with_each_request() -> None:
    tokens = iter(f"token-{number}" for number in range(1000))
    with http_server() as url, anyio.fail_after(BOUND):
        async with connect_mcp(url, auth=lambda: next(tokens)) as connection:
            headers = [(await connection.call_tool("seen_headers")).structured_content["headers"] for _ in range(2)]
    first, second = ({key.lower(): value for key, value in one.items()}["authorization"] for one in headers)
    assert first.startswith("Bearer token-")
    assert first != second


@pytest.mark.requirement("R70", "R8", "D9")
@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"transport": "stdio", "connection": {}}, "connection"),
        ({"transport": "sse", "connection": {"command": "x"}}, "url"),
        ({"serverName": "", "transport": "stdio", "connection": {"args": []}}, "command"),
    ],
)
def test_what_is_missing_is_named(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        normalize_config("mine", config)
    assert caught.value.server == "mine"
    with pytest.raises(ConfigError, match="serverName"):
        normalize_config("", {"command": "x"})


@pytest.mark.requirement("D9")
async def test_servers_without_a_name_do_not_take_each_others_place() -> None:
    command = [echo()["command"], *echo()["args"]]
    with anyio.fail_after(BOUND):
        async with connect_mcp_servers([command, command, echo(), echo()]) as hub:
            assert len(hub.clients) == len({pid_of(client) for client in hub.clients.values()}) == 2
            assert len({spec.name for spec in hub.snapshot()}) == len(hub.snapshot())
            assert ["'name'" in str(error) for error in hub.errors.values()] == [True, True]


@pytest.mark.requirement("R18", "D1", "D2")
async def test_the_client_connects_gives_lists_calls_and_disconnects_by_name() -> None:
    async with opened({}) as client:
        assert client.clients.get("a") is None
        first = await client.connect("a", full("a"))
        await client.connect("b", full("b"))
        assert await client.connect("a", full("a")) is first
        assert client.clients.get("a") is first
        assert "echo" in (await first.list_tools()).names
        assert (await first.call_tool("echo", {"text": "hi"})).text == "hi"
        pids = [pid_of(one) for one in client.clients.values()]
        await client.disconnect("a")
        assert client.clients.get("a") is None
        assert [alive(pid) for pid in pids] == [False, True]
        await client.close()
    assert not any(alive(pid) for pid in pids)


@pytest.mark.requirement("R19", "R32", "D7")
async def test_the_service_discovers_registers_what_passes_and_unregisters_by_server() -> None:
    files, database = ToolServer("files", ["read_file", "delete_file"]), ToolServer("postgres", ["query", "delete_row"])
    async with opened({}) as service:
        com = filtered(service, predicate=lambda spec: "delete" not in spec.original_name)
        await service.connect("files", files.config())
        definitions = service.clients["files"].snapshot()
        assert [definition.name for definition in definitions] == ["read_file", "delete_file"]
        async with next_change(com, adds="postgres_query"):
            await service.connect("postgres", database.config())
        assert [spec.name for spec in com.snapshot()] == ["files_read_file", "postgres_query"]
        async with next_change(com, removes="files_read_file") as changes:
            await service.disconnect("files")
        assert [spec.name for spec in com.snapshot()] == ["postgres_query"]
        assert changes[0].removed == ("files_read_file",)  # exactly its own, no more


@pytest.mark.requirement("R30", "R31", "R39", "R32")
async def test_programmatic_discovery_as_in_the_example() -> None:
    async with discover_mcp_tools(full("filesystem"), include=["echo", "add"], tool_prefix="fs_") as tools:
        assert tools.names == ("fs_echo", "fs_add")
        registry = ToolRegistry(tool for tool in tools if "add" not in tool.name)
        assert (await registry.execute("fs_echo", {"text": "hi"})).text == "hi"
        assert (await registry.execute("fs_add", {"a": 1, "b": 2})).is_error


@pytest.mark.requirement("R21")
async def test_a_shared_client_is_closed_by_its_owner_and_never_by_a_borrower() -> None:
    async with opened({}) as shared:
        async with discover_mcp_tools(full("postgres"), client=shared) as tools:
            connection = tools.connection
        again = await discover_mcp_tools(full("postgres"), client=shared, tool_prefix="db_")
        await again.close()
        assert again.connection is connection
        assert connection.state is ConnectionState.READY
    assert connection.state is ConnectionState.CLOSED


@pytest.mark.requirement("R23")
async def test_closing_and_errors_are_events_of_the_connection() -> None:
    seen: list[str] = []
    with anyio.fail_after(BOUND):
        connection = await connect_mcp(echo(), name="s", restart="never")
        remove = connection.on("error", lambda error: seen.append(f"error: {error}"))

        @connection.on("closed")
        def closed(change: StateChanged) -> None:
            seen.append(f"event: {change.previous} to {change.state}")

        connection.on("state", lambda change: seen.append(str(change.state)))
        assert (await (await connection.list_tools())["crash"].execute()).is_error
        await eventually(lambda: connection.state is ConnectionState.FAILED)
        assert any(line.startswith("error: server 's'") and "exit code 7" in line for line in seen)
        assert "failed" in seen
        remove()
        await connection.close()
        await connection.close()
    assert closed.__name__ == "closed"  # the decorator gives the listener back
    assert seen[-2:] == ["closed", "event: failed to closed"]  # the state, and the event of its own, once each


@pytest.mark.requirement("C26", "C3")
async def test_a_failed_start_is_never_swallowed_by_a_listener_and_the_caller_decides_what_it_costs() -> None:
    heard: list[Exception] = []
    connection = McpConnection(ServerConfig(name="gone", **absent()))
    connection.on("error", heard.append)
    with anyio.fail_after(BOUND):
        with pytest.raises(ConnectError):
            async with connection:
                pytest.fail("it cannot be entered")
        assert {type(error) for error in heard} == {ConnectError}
        async with connect_mcp_servers({"gone": absent(), "here": echo()}) as hub:
            assert set(hub.errors) == {"gone"}
        with pytest.raises(ExceptionGroup):
            async with Hub({"gone": absent(), "here": echo()}, on_error="raise"):
                pytest.fail("it cannot be entered")


@pytest.mark.requirement("R11", "C7")
async def test_the_sse_transport_with_authorization_as_in_the_example() -> None:
    with http_server("--era", "sse", "--require-bearer", "session-token", path="/sse") as url, anyio.fail_after(BOUND):
        config = {"transport": "sse", "connection": {"url": url}, "auth": {"type": "bearer", "token": "session-token"}}
        async with connect_mcp(config, name="api") as connection:
            tools = filtered(connection, exclude=["shrink"])
            assert "shrink" not in [spec.name for spec in tools.snapshot()]
            assert (await connection.call_tool("echo", {"text": "hi"})).text == "hi"


@pytest.mark.requirement("R12", "C5")
async def test_websocket_is_an_old_name_of_streamable_http() -> None:
    with http_server() as url, anyio.fail_after(BOUND):
        with pytest.warns(DeprecationWarning, match="websocket"):
            connecting = connect_mcp({"serverName": "w", "transport": "websocket", "connection": {"url": url}})
        async with connecting as connection:
            assert connection.config.transport == "http"
            assert (await connection.call_tool("echo", {"text": "hi"})).text == "hi"


@pytest.mark.slow
@pytest.mark.requirement("R46", "C10")
async def test_arguments_are_checked_before_the_server_is_called() -> None:
    with anyio.fail_after(BOUND):
        async with connect_mcp(echo()) as connection:
            refused = await (await connection.list_tools())["echo"].execute({"text": 5})
            calls = (await connection.call_tool("state")).structured_content["calls"]
        async with connect_mcp({**echo(), "validate_input": False}) as loose:
            assert (await (await loose.list_tools())["echo"].execute({"text": 5})).text == "5"
    assert refused.require_error().kind is ErrorKind.INVALID_INPUT
    assert "echo" not in calls


@pytest.mark.requirement("R44", "R43", "R47", "D8")
def test_a_schema_becomes_a_model_with_its_descriptions_and_optional_members() -> None:
    model: type[BaseModel] = schema_to_model(
        {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "File path"},
                "depth": {"type": "integer"},
                "ratio": {"type": "number"},
                "follow": {"type": "boolean"},
                "kinds": {"type": "array", "items": {"enum": ["file", "folder"]}},
                "filter": {"type": "object", "properties": {"suffix": {"type": "string"}}, "required": ["suffix"]},
            },
            "required": ["path"],
        }
    )
    assert model.model_fields["path"].description == "File path"
    assert {name for name, one in model.model_fields.items() if one.is_required()} == {"path"}
    assert model.model_validate({"path": "/", "kinds": ["file"], "filter": {"suffix": ".py"}})
    wrong: list[dict[str, Any]] = [
        {},
        {"path": "/", "kinds": ["link"]},
        {"path": "/", "depth": "deep"},
        {"path": "/", "filter": {}},
    ]
    for value in wrong:
        with pytest.raises(ValidationError):
            model.model_validate(value)


@pytest.mark.requirement("R112", "R13", "R54", "R42", "R32")
async def test_all_five_extension_points_work_on_one_server() -> None:
    server = ToolServer("custom", ["read_file", "drop_table"])

    @asynccontextmanager
    async def dial(config: ServerConfig) -> AsyncGenerator[Channel]:
        assert config.options["line"] == 7
        async with server as channel:
            yield channel

    register_transport("tin-can", dial)
    entry = {"transport": "tin-can", "connection": {"line": 7}, "protocol": "legacy"}
    async with opened({"custom": entry}) as hub:
        safe = filtered(hub, predicate=lambda spec: not spec.original_name.startswith("drop"))
        strict = enhanced(safe, lambda spec: {**spec.input_schema, "additionalProperties": False})
        shouting = transformed(strict, lambda result, spec: ToolResult.of(f"{spec.name}: {result.text.upper()}"))
        tools = renamed(shouting, lambda spec: spec.original_name.replace("_", "-"))
        assert [(spec.name, spec.input_schema["additionalProperties"]) for spec in tools.snapshot()] == [
            ("read-file", False)
        ]
        result = await tools.call(ToolCall(name="read-file"), CallContext())
    assert result.text == "custom_read_file: CUSTOM|READ_FILE"
    assert server.called == ["read_file"]


@pytest.mark.requirement("R113", "R36")
async def test_the_four_limitations_are_gone() -> None:
    with anyio.fail_after(BOUND):
        lazy = await connect_mcp(echo(), name="s", lazy=True)
        assert lazy.state is ConnectionState.IDLE  # lazy loading
        names = renamed(lazy, {"echo": "say"})
        assert "say" in (await _listed(lazy, names))  # names
        tool = (await lazy.list_tools())["crash"]
        assert (await tool.execute()).is_error
        assert (await lazy.call_tool("echo", {"text": "reconnected"})).text == "reconnected"  # reconnection
        assert lazy.restarts == 1
        await lazy.close()
    nested = {"anyOf": [{"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}, {"type": "null"}]}
    model = schema_to_model({"type": "object", "properties": {"x": nested}, "required": ["x"]})  # schemas
    with pytest.raises(ValidationError):
        model.model_validate({"x": {"a": 2}})
    assert model.model_validate({"x": None})


async def _listed(connection: McpConnection, view: Any) -> list[str]:
    await connection.list_tools()
    return [spec.name for spec in view.snapshot()]
