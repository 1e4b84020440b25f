"""The server in memory, as a client sees it and as a test drives it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from toolweave import (
    CallContext,
    ConnectionLostError,
    ErrorKind,
    McpConnection,
    Progress,
    ProtocolError,
    RequestTimeoutError,
    TextContent,
    Tool,
    ToolCall,
    ToolError,
    ToolRegistry,
    ToolResult,
    ToolsChanged,
    connect_mcp,
    connect_mcp_servers,
    tool,
)
from toolweave.connect import Callbacks, Channel, SamplingRequest
from toolweave.testing import MemoryServer
from toolweave.tools import EmbeddedResource, ImageContent, ResourceLink, combined, prefixed

MODERN = "2026-07-28"
VERSIONS = ("2024-11-05", "2025-11-25", MODERN)
each_version = pytest.mark.parametrize("version", VERSIONS)
ADD = {"a": 1, "b": 2}
ADD_CALL = ToolCall(name="add", arguments=ADD)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@asynccontextmanager
async def connected(server: Any, **options: Any) -> AsyncGenerator[McpConnection, None]:
    with anyio.fail_after(30):
        async with connect_mcp(server, **options) as connection:
            yield connection


@each_version
async def test_a_function_is_a_tool_of_a_server_of_any_revision(version: str) -> None:
    server = MemoryServer([add], name="numbers", instructions="Add.", protocol=version)

    async with connected(server) as numbers:
        result = await numbers.call_tool("add", ADD)

        assert numbers.name == "numbers"
        assert numbers.protocol_version == version
        assert numbers.server_info == {"name": "numbers", "version": "1.0.0"}
        assert numbers.instructions == "Add."
        assert (await numbers.list_tools())["add"].description == "Add two numbers."
        assert result.text == "3"
    assert server.calls == [ADD_CALL]
    assert ("initialize" in server.methods) is (version != MODERN)


async def test_a_server_that_speaks_every_revision_is_spoken_to_in_the_newest_or_in_the_one_that_is_asked_for() -> None:
    server = MemoryServer([add])

    async with connected(server) as newest, connected({"server": server, "protocol": "2025-06-18"}) as older:
        assert newest.protocol_version == MODERN
        assert older.protocol_version == "2025-06-18"


def test_a_revision_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(ValueError, match=r"'2027-01-01' is unknown; there are auto, legacy, 2024-11-05, .*2026-07-28"):
        MemoryServer(protocol="2027-01-01")


async def test_tools_may_be_given_as_anything_that_is_a_toolset() -> None:
    registry = ToolRegistry([add])
    for given, name in (
        (add, "add"),
        (tool(add, name="plus"), "plus"),
        (registry, "add"),
        (prefixed(registry, "my"), "my_add"),
        ([add, prefixed(registry, "my")], "my_add"),
        (combined(registry, prefixed(registry, "my")), "my_add"),
    ):
        async with connected(MemoryServer(given)) as connection:
            assert (await connection.call_tool(name, ADD)).text == "3"


def test_what_offers_no_tools_is_refused() -> None:
    with pytest.raises(TypeError, match="offers no tools"):
        MemoryServer([1])  # type: ignore[list-item]


async def test_another_connection_is_served_as_a_server() -> None:
    upstream = MemoryServer([add])

    async with connect_mcp(upstream) as inner, connected(MemoryServer(inner, name="outer")) as outer:
        assert (await outer.call_tool("add", ADD)).text == "3"
        upstream.fail_next(code=-32005, message="busy")
        busy = (await outer.call_tool("add", ADD)).require_error()
        assert ("busy" in busy.message, busy.code) == (True, -32005)


@each_version
async def test_a_protocol_error_with_a_text_for_a_code_reaches_the_caller_as_an_error_result(version: str) -> None:
    @tool
    def broken() -> str:
        raise ToolError("the upstream is confused", kind=ErrorKind.PROTOCOL, code="E_CONFUSED")

    async with connected(MemoryServer([broken], protocol=version)) as connection:
        result = await connection.call_tool("broken")

    assert result.error is not None
    assert "the upstream is confused" in result.error.message


@each_version
async def test_tools_that_come_and_go_are_told_to_clients(version: str) -> None:
    server = MemoryServer([add], protocol=version)
    changes: list[ToolsChanged] = []
    changed = anyio.Event()

    def take(change: ToolsChanged) -> None:
        changes.append(change)
        changed.set()

    async with connected(server) as connection:
        if version == MODERN:
            await server.wait_for("subscriptions/listen")
            await server.wait_for("tools/list", 2)  # what changed before the subscription held
        connection.on("tools_changed", take)

        @server.tool(description="Subtract.")
        def subtract(a: int, b: int) -> int:
            return a - b

        await changed.wait()
        assert subtract(3, 2) == 1
        assert changes[-1].added == ("subtract",)
        assert (await connection.call_tool("subtract", ADD)).text == "-1"

        changed = anyio.Event()
        server.remove_tool("add")
        await changed.wait()
        assert changes[-1].removed == ("add",)

        changed = anyio.Event()
        server.tool(tool(subtract, description="Take away."))
        await changed.wait()
        assert changes[-1].changed == ("subtract",)


async def test_a_tool_that_changes_the_server_may_run_in_a_thread() -> None:
    server = MemoryServer()
    changed = anyio.Event()

    @server.tool
    def grow() -> str:
        server.tool(add)
        return "grown"

    async with connected(server) as connection:
        await server.wait_for("tools/list", 2)
        connection.on("tools_changed", lambda _change: changed.set())
        assert (await connection.call_tool("grow")).text == "grown"
        await changed.wait()
        assert connection.snapshot().find("add")


async def test_a_tool_that_is_not_there_cannot_be_removed() -> None:
    with pytest.raises(KeyError, match="add"):
        MemoryServer().remove_tool("add")


@each_version
async def test_progress_goes_to_whoever_called(version: str) -> None:
    server = MemoryServer(protocol=version)

    @server.tool
    async def work(ctx: CallContext) -> str:
        await ctx.progress(1)
        await ctx.progress(2, 2, "done")
        return "worked"

    seen: list[Progress] = []
    async with connected(server) as connection:
        assert (await connection.call_tool("work", on_progress=seen.append)).text == "worked"
        assert (await connection.call_tool("work")).text == "worked"

    assert seen == [Progress(progress=1), Progress(progress=2, total=2, message="done")]


@each_version
async def test_results_travel_whole(version: str) -> None:
    blocks = (
        TextContent(text="a", annotations={"audience": ["user"]}, meta={"x.org/y": 1}),
        ImageContent(data="AAAA", mime_type="image/png"),
        ResourceLink(uri="memo://1", name="one", size=3),
        EmbeddedResource(uri="memo://2", text="two"),
    )
    made = ToolResult(content=blocks, structured_content={"a": None}, meta={"x.org/z": 2})
    server = MemoryServer(protocol=version)
    server.tool(name="make")(lambda: made)

    async with connected(server) as connection:
        result = await connection.call_tool("make")

    assert result.content == blocks
    assert result.structured_content == {"a": None}
    assert result.meta["x.org/z"] == 2


@each_version
async def test_a_function_that_raises_and_arguments_that_do_not_fit_are_error_results(version: str) -> None:
    server = MemoryServer([add], protocol=version)

    @server.tool
    def broken() -> None:
        raise ZeroDivisionError("by zero")

    async with connected({"server": server, "validate_input": False}) as connection:
        failed = await connection.call_tool("broken")
        unfit = await connection.call_tool("add", {"a": "x"})
        with pytest.raises(ProtocolError, match="Unknown tool: ad") as raised:
            await connection.call_tool("ad")

    assert failed.is_error
    assert "by zero" in failed.text
    assert unfit.is_error
    assert '"b"' in unfit.text
    assert raised.value.code == -32602


@each_version
async def test_a_list_is_wrapped_for_an_older_revision(version: str) -> None:
    server = MemoryServer(protocol=version)

    @server.tool(output_schema={"type": "array"})
    def numbers() -> list[int]:
        return [1, 2]

    async with connected(server) as connection:
        result = await connection.call_tool("numbers")
        spec = connection.snapshot().by_name["numbers"]

    assert result.text == "[1, 2]"
    assert result.data == [1, 2]
    assert result.structured_content == ([1, 2] if version == MODERN else {"result": [1, 2]})
    assert isinstance(spec.output_schema, dict)
    assert spec.output_schema["type"] == ("array" if version == MODERN else "object")


@each_version
async def test_resources_are_read(version: str) -> None:
    server = MemoryServer(protocol=version)
    server.resource("memo://text", "hello", name="greeting", mime_type="text/plain")
    server.resource("memo://bytes", b"\x00\x01")

    @server.resource("memo://made")
    async def made() -> str:
        return "made"

    async with connected(server) as connection:
        listed = await connection.list_resources()
        contents = [(await connection.read_resource(one.uri))[0] for one in listed]
        with pytest.raises(ProtocolError, match="Resource not found: memo://none") as raised:
            await connection.read_resource("memo://none")

    assert [(one.uri, one.name) for one in listed] == [
        ("memo://text", "greeting"),
        ("memo://bytes", "memo://bytes"),
        ("memo://made", "memo://made"),
    ]
    assert [one.decode() for one in contents] == [b"hello", b"\x00\x01", b"made"]
    assert raised.value.code == (-32602 if version == MODERN else -32002)
    assert made.__name__ == "made"


@each_version
async def test_prompts_are_written(version: str) -> None:
    server = MemoryServer(protocol=version)

    @server.prompt
    def greet(name: str, style: str = "kind") -> str:
        """Greet somebody."""
        return f"Greet {name}, {style}."

    @server.prompt
    def talk() -> list[Any]:
        return [{"role": "assistant", "content": {"type": "text", "text": "Yes?"}}]

    async with connected(server) as connection:
        prompts = await connection.list_prompts()
        greeting = await connection.get_prompt("greet", {"name": "Ada"})
        talking = await connection.get_prompt("talk")
        with pytest.raises(ProtocolError, match="needs the argument 'name'"):
            await connection.get_prompt("greet")
        with pytest.raises(ProtocolError, match="Unknown prompt: gret"):
            await connection.get_prompt("gret")

    assert [argument.required for argument in prompts[0].arguments] == [True, False]
    assert prompts[0].description == "Greet somebody."
    assert greeting.messages[0].content == TextContent(text="Greet Ada, kind.")
    assert talking.messages[0].role == "assistant"


@each_version
async def test_lists_come_in_pages_when_asked_to(version: str) -> None:
    tools = [tool(add, name=f"tool{number}") for number in range(5)]
    server = MemoryServer(tools, page_size=2, protocol=version)

    async with connected(server) as connection:
        assert len(await connection.list_tools()) == 5
    cursors = [one.params.get("cursor") for one in server.requests if one.method == "tools/list"][:3]
    assert cursors[0] is None
    assert len(set(cursors)) == 3


@each_version
async def test_a_scripted_answer_goes_out_in_the_place_of_the_real_one(version: str) -> None:
    server = MemoryServer([add, tool(add, name="plus")], protocol=version)
    numbers = {"add": "5", "plus": "6"}

    async with connected(server) as connection:
        server.answer("tools/call", {"content": [{"type": "text", "text": "7"}]}, tool="add")
        server.answer(
            "tools/call", lambda params: {"content": [{"type": "text", "text": numbers[params["name"]]}]}, times=2
        )

        values = [(await connection.call_tool(name, ADD)).text for name in ("add", "plus", "add", "plus")]

    assert values == ["5", "6", "7", "3"]


async def test_the_newest_lasting_answer_counts_and_a_function_may_be_async() -> None:
    server = MemoryServer([add])

    async def late(params: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return {"content": [], "structuredContent": params["arguments"]["a"]}

    async with connected(server) as connection:
        server.answer("tools/call", {"content": []})
        server.answer("tools/call", late)
        assert (await connection.call_tool("add", ADD)).structured_content == 1


async def test_an_answer_that_is_no_json_is_an_error_of_the_server() -> None:
    server = MemoryServer([add])
    server.answer("tools/call", {"content": [], "structuredContent": float("nan")}, times=1)
    server.answer("tools/call", {"content": [], "structuredContent": object()}, times=1)

    async with connected(server) as connection:
        for _ in range(2):
            with pytest.raises(ProtocolError, match="this is not JSON"):
                await connection.call_tool("add", ADD)


@each_version
async def test_the_next_call_fails_and_the_one_after_it_does_not(version: str) -> None:
    server = MemoryServer([add], protocol=version)

    async with connected(server) as connection:
        server.fail_next(message="busy", code=-32011, data={"wait": 1})
        with pytest.raises(ProtocolError, match="busy") as raised:
            await connection.call_tool("add", ADD)
        assert (await connection.call_tool("add", ADD)).text == "3"

    assert (raised.value.code, raised.value.data) == (-32011, {"wait": 1})
    assert server.calls == [ADD_CALL, ADD_CALL]


def test_a_script_for_no_request_is_refused() -> None:
    with pytest.raises(ValueError, match="times must be at least 1"):
        MemoryServer().fail_next(times=0)


@each_version
async def test_a_crash_loses_the_call_that_runs_and_the_next_one_is_served(version: str) -> None:
    server = MemoryServer([add], protocol=version)

    async with connected(server) as connection:
        server.crash(on="tools/call", tool="add")
        with pytest.raises(ConnectionLostError) as raised:
            await connection.call_tool("add", ADD)
        assert raised.value.sent
        assert (await connection.call_tool("add", ADD)).text == "3"
        assert connection.restarts == 1
    assert server.conversations == 2


async def test_a_crash_at_once_ends_every_conversation() -> None:
    server = MemoryServer([add])

    async with connected(server) as one, connected(server) as other:
        lost = {one: anyio.Event(), other: anyio.Event()}
        for connection, event in lost.items():
            connection.on("state", lambda change, event=event: event.set() if change.state != "ready" else None)
        server.crash()
        for event in lost.values():
            await event.wait()
        assert (await one.call_tool("add", ADD)).text == (await other.call_tool("add", ADD)).text == "3"
    assert server.conversations == 4


@each_version
async def test_a_hang_holds_one_call_until_its_timeout_and_the_server_hears_of_it(version: str) -> None:
    server = MemoryServer([add], protocol=version)

    async with connected(server) as connection:
        server.hang()
        with pytest.raises(RequestTimeoutError):
            await connection.call_tool("add", ADD, timeout=0.05)
        told = await server.wait_for("notifications/cancelled")
        assert told.params["requestId"] == (await server.wait_for("tools/call")).id
        assert (await connection.call_tool("add", ADD)).text == "3"


async def test_a_caller_that_gives_up_stops_the_tool() -> None:
    server = MemoryServer()
    begun, stopped = anyio.Event(), anyio.Event()

    @server.tool
    async def work() -> None:
        begun.set()
        with contextlib.ExitStack() as ends:
            ends.callback(stopped.set)
            await anyio.sleep_forever()

    async with connected(server) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.call_tool, "work")
            await begun.wait()
            tasks.cancel_scope.cancel()
        await stopped.wait()


async def test_a_server_that_fails_its_handshake_is_scripted_like_any_other() -> None:
    server = MemoryServer(protocol="legacy")
    server.fail_next("initialize", "not today")

    with pytest.raises(Exception, match="not today"):
        async with connected(server, restart="never"):
            pass
    async with connected(server) as connection:
        assert connection.protocol_version == "2025-11-25"


@each_version
async def test_a_notification_reaches_the_client(version: str) -> None:
    server = MemoryServer([add], protocol=version)
    seen: list[tuple[str, Any]] = []
    came = anyio.Event()

    async with connected(server) as connection:
        connection.on("notification", lambda told: (seen.append(told), came.set()))
        server.notify("notifications/message", {"level": "info", "data": "hello"})
        await came.wait()

    assert ("notifications/message", {"level": "info", "data": "hello"}) in seen


async def test_the_server_may_ask_the_client() -> None:
    server = MemoryServer(protocol="2025-11-25")

    async with connected(server):
        assert await server.ask("ping") == {}
        with pytest.raises(ProtocolError) as raised:
            await server.ask("no/such/method")
    assert raised.value.code == -32601
    with pytest.raises(RuntimeError, match="no client is connected to server 'memory'"):
        await server.ask("ping")


async def raw(server: MemoryServer, method: str, **params: Any) -> Any:
    """Send one request by hand and return the answer."""
    with anyio.fail_after(30):
        async with server as channel:
            await channel.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())
            return json.loads(await channel.receive())


@pytest.mark.parametrize(
    ("protocol", "method", "meta", "code"),
    [
        ("2025-11-25", "tools/list", {}, -32602),
        ("2025-11-25", "server/discover", {}, -32601),
        ("2025-11-25", "server/discover", {"protocolVersion": MODERN}, -32601),
        (MODERN, "initialize", {}, -32022),
        (MODERN, "server/discover", {"protocolVersion": "2027-01-01", "clientCapabilities": {}}, -32022),
        (MODERN, "server/discover", {"protocolVersion": MODERN}, -32602),
        ("auto", "no/such", {"protocolVersion": MODERN, "clientCapabilities": {}}, -32601),
    ],
)
async def test_a_request_that_does_not_fit_the_revision_is_refused_with_its_code(
    protocol: str, method: str, meta: dict[str, Any], code: int
) -> None:
    prefixed_meta = {f"io.modelcontextprotocol/{key}": value for key, value in meta.items()}

    answer = await raw(MemoryServer(protocol=protocol), method, _meta=prefixed_meta)

    assert answer["error"]["code"] == code


async def shaken_hands(channel: Channel, version: str) -> None:
    """Begin a conversation by hand."""
    hello: dict[str, Any] = {"protocolVersion": version, "capabilities": {}}
    await channel.send(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}).encode())
    assert json.loads(await channel.receive())["result"]["protocolVersion"] == version


async def test_every_message_of_a_batch_is_noted_and_answered() -> None:
    server = MemoryServer()
    async with server as channel:
        await shaken_hands(channel, "2025-03-26")
        await channel.send(b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]')
        answers = json.loads(await channel.receive())

    assert [answer["id"] for answer in answers] == [1, 2]
    assert server.methods == ["initialize", "ping", "ping"]
    assert isinstance(channel, Channel)


async def test_what_is_no_message_is_refused_and_not_noted() -> None:
    server = MemoryServer()
    async with server as channel:
        for text in (b"no json", b"3"):
            await channel.send(text)
            assert json.loads(await channel.receive())["error"]["code"] in (-32700, -32600)

    assert server.requests == []


async def test_a_page_that_does_not_exist_is_refused() -> None:
    async with MemoryServer([add], page_size=1) as channel:
        await shaken_hands(channel, "2025-11-25")
        await channel.send(b'{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"no"}}')
        answer = json.loads(await channel.receive())

    assert answer["error"]["code"] == -32602


@each_version
async def test_what_no_server_should_send_is_sent_as_it_is(version: str) -> None:
    server = MemoryServer([add], protocol=version)

    async with connected(server) as connection:
        server.send(b"no json at all")
        server.send({"jsonrpc": "2.0", "id": 4711, "result": {}})
        assert (await connection.call_tool("add", ADD)).text == "3"
        assert connection.restarts == 0


async def test_a_resource_that_changes_is_told_to_whoever_subscribed() -> None:
    server = MemoryServer(protocol=MODERN)
    server.resource("memo://1", "old")
    server.resource("memo://2", "old")
    meta: Any = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
    wanted = {"resourceSubscriptions": ["memo://1"]}

    async with server as channel:
        listen: Any = {
            "jsonrpc": "2.0",
            "id": 7,
            "method": "subscriptions/listen",
            "params": {"notifications": wanted, "_meta": meta},
        }
        await channel.send(json.dumps(listen).encode())
        assert json.loads(await channel.receive())["params"]["notifications"] == wanted
        server.resource("memo://2", "new")
        server.resource("memo://1", "new")
        told = json.loads(await channel.receive())

    assert told["method"] == "notifications/resources/updated"
    assert told["params"] == {"uri": "memo://1", "_meta": {"io.modelcontextprotocol/subscriptionId": 7}}


async def test_a_hub_takes_it_like_any_server() -> None:
    async with connect_mcp_servers({"one": {"server": MemoryServer([add])}}) as hub:
        assert (await hub.execute("one_add", ADD)).text == "3"


async def test_what_came_is_there_to_be_asserted() -> None:
    server = MemoryServer([add], name="numbers")

    async with connected(server) as connection:
        result = await connection.call(ToolCall(name="no"), CallContext())
        await connection.call_tool("add", ADD)
        call = await server.wait_for("tools/call")
        assert repr(server) == "<MemoryServer 'numbers', 1 tools, 1 clients>"

    assert result.error is not None
    assert result.error.kind is ErrorKind.NOT_FOUND
    assert (call.tool, call.params["arguments"], call.conversation) == ("add", ADD, 1)
    assert server.methods[0] == "server/discover"
    assert server.requests[0].tool is None
    assert isinstance(server.tool(add), Tool)


async def test_a_question_to_a_client_that_goes_away_is_an_error_and_no_cancellation() -> None:
    server = MemoryServer(protocol="legacy")

    async def sample(_request: SamplingRequest) -> None:
        server.crash()
        with pytest.raises(ConnectionLostError):
            await server.ask("roots/list")
        await anyio.sleep_forever()

    with anyio.fail_after(20):
        async with connect_mcp(server, callbacks=Callbacks(sampling=sample)):
            with pytest.raises(ConnectionLostError, match="ended before the client answered"):
                await server.ask("sampling/createMessage", {"messages": []})
