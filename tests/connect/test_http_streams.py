"""Event streams over HTTP: what comes before the answer, resumption, the stream of a session, lost sessions."""

from __future__ import annotations

import json
from collections.abc import Callable

import anyio
import pytest

from tests.connect.scripted import (
    Exchange,
    HttpScript,
    Special,
    answer_to,
    answers_to,
    legacy_answer,
    listening,
    modern_answer,
)
from tests.connect.targets import Json, connected, eventually, initialized
from toolweave import AuthRequiredError, ErrorKind, McpConnection, ProtocolError, connect_mcp
from toolweave.connect import ConnectionState


def legacy(special: Special) -> HttpScript:
    return HttpScript(initialized(legacy_answer), special)


def modern(special: Special) -> HttpScript:
    return HttpScript(modern_answer, special)


def progress(token: str, number: int) -> str:
    params = {"progressToken": token, "progress": number}
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


@pytest.mark.parametrize("era", [legacy, modern])
@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_what_comes_before_the_answer_is_taken_in_order_however_it_is_cut(
    size: int, era: Callable[[Special], HttpScript]
) -> None:
    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        token = message["params"]["_meta"]["progressToken"]
        text = "".join(f"data: {progress(token, number)}\r\n\r\n: still here\r\n" for number in range(1, 4))
        mark = "\ufeff"
        stream = f"{mark}{text}event: message\ndata: {answer_to(message)}\n\n".encode()
        await exchange.start_stream()
        for start in range(0, len(stream), size):
            await exchange.chunk(stream[start : start + size])
        await exchange.end_stream()

    seen: list[float] = []
    async with (
        listening(era(special).handle) as (url, _),
        connected(url) as connection,
    ):
        result = await connection.call_tool("t", on_progress=lambda step: seen.append(step.progress))
    assert result.text == "done"
    assert seen == [1, 2, 3]


async def test_a_notification_that_is_nested_too_deeply_costs_itself_only() -> None:
    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        await exchange.start_stream()
        deep = "[" * 5000 + "]" * 5000
        await exchange.event('{"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": ' + deep + "}}")
        await exchange.event('{"jsonrpc": "2.0", "id": 999, "result": ' + deep + "}")
        await exchange.event(answer_to(message))
        await exchange.end_stream()

    async with listening(modern(special).handle) as (url, _), connected(url) as connection:
        assert (await connection.call_tool("t")).text == "done"


async def test_a_stream_that_the_server_ends_to_be_polled_is_fetched_when_it_says() -> None:
    call: Json = {}

    async def special(exchange: Exchange, message: Json) -> bool:
        if message.get("method") == "tools/call":
            call.update(message)
            await exchange.start_stream()
            await exchange.chunk(b"id: e-1\nretry: 20\ndata:\n\n")
            await exchange.end_stream()
            return True
        if exchange.method == "GET" and exchange.headers.get("last-event-id") == "e-1":
            await exchange.start_stream()
            await exchange.chunk(f"id: e-2\ndata: {answer_to(call)}\n\n".encode())
            await exchange.end_stream()
            return True
        return False

    server = legacy(special)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        assert (await connection.call_tool("t")).text == "done"
    assert server.methods().count("tools/call") == 1
    # The connection of the first stream is free for the one that goes on.
    writers = [one.writer for one in server.exchanges if "last-event-id" in one.headers or b"tools/call" in one.body]
    assert len(writers) == 2
    assert writers[0] is writers[1]


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_call_whose_stream_cannot_be_resumed_is_not_made_again(status: int) -> None:
    async def special(exchange: Exchange, message: Json) -> bool:
        if message.get("method") == "tools/call":
            await exchange.start_stream()
            await exchange.chunk(b"id: e-1\nretry: 1\ndata:\n\n")
            await exchange.end_stream()
            return True
        if exchange.method == "GET" and "last-event-id" in exchange.headers:
            await exchange.respond(status, b"session not found")
            return True
        return False

    server = legacy(special)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        result = await (await connection.list_tools())["t"].execute()
        assert result.error is not None
        assert result.error.kind is ErrorKind.OUTCOME_UNKNOWN
        assert f"could not be resumed: its session has ended: HTTP {status}" in result.text or status == 405
    assert server.methods().count("tools/call") == 1
    assert len([one for one in server.exchanges if "last-event-id" in one.headers]) == 1


async def test_a_call_whose_stream_brings_nothing_new_is_resumed_three_times() -> None:
    async def special(exchange: Exchange, message: Json) -> bool:
        if message.get("method") == "tools/call" or "last-event-id" in exchange.headers:
            await exchange.start_stream()
            await exchange.chunk(b"id: e-1\nretry: 1\ndata:\n\n")
            await exchange.end_stream()
            return True
        return False

    server = legacy(special)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        result = await (await connection.list_tools())["t"].execute()
        assert result.error is not None
        assert result.error.kind is ErrorKind.OUTCOME_UNKNOWN
    assert server.methods().count("tools/call") == 1
    assert [one.headers["last-event-id"] for one in server.exchanges if "last-event-id" in one.headers] == ["e-1"] * 3


@pytest.mark.requirement("D4")
async def test_credentials_that_run_out_before_the_stream_is_resumed_are_asked_for() -> None:
    async def special(exchange: Exchange, message: Json) -> bool:
        if message.get("method") == "tools/call":
            await exchange.start_stream()
            await exchange.chunk(b"id: e-1\nretry: 1\ndata:\n\n")
            await exchange.end_stream()
            return True
        if exchange.method == "GET" and "last-event-id" in exchange.headers:
            await exchange.respond(401, www_authenticate='Bearer error="expired"')
            return True
        return False

    async with listening(legacy(special).handle) as (url, _), connected(url) as connection:
        with pytest.raises(AuthRequiredError) as refused:
            await connection.call_tool("t")
    assert (refused.value.status, refused.value.challenge) == (401, 'Bearer error="expired"')


@pytest.mark.requirement("D4")
async def test_a_handshake_whose_last_word_is_refused_for_credentials_asks_for_them() -> None:
    @answers_to("notifications/initialized")
    async def special(exchange: Exchange, message: Json) -> None:
        await exchange.respond(401, www_authenticate='Bearer realm="late"')

    async with listening(legacy(special).handle) as (url, _):
        with anyio.fail_after(20), pytest.raises(AuthRequiredError) as refused:
            await connect_mcp(url)
    assert refused.value.challenge == 'Bearer realm="late"'


@pytest.mark.parametrize("status", [401, 403, 404, 405, 406, 200])
async def test_a_session_whose_stream_is_refused_goes_on_without_and_asks_once(status: int) -> None:
    asked = anyio.Event()

    @answers_to("GET")
    async def special(exchange: Exchange, message: Json) -> None:
        await exchange.respond(status, b"<p>no stream here</p>", content_type="text/html")
        asked.set()

    server = legacy(special)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        await asked.wait()
        for _ in range(3):
            assert (await connection.call_tool("t")).text == "done"
        assert connection.state is ConnectionState.READY
        assert connection.restarts == 0
    assert server.methods().count("GET") == 1


async def test_a_session_found_lost_on_its_stream_is_begun_again() -> None:
    streams: list[Exchange] = []

    @answers_to("GET")
    async def special(exchange: Exchange, message: Json) -> None:
        streams.append(exchange)
        if len(streams) == 2:
            await exchange.respond(404, b"who?")
            return
        await exchange.start_stream()
        await exchange.chunk(b"retry: 1\nid: n\ndata:\n\n")
        if len(streams) == 1:
            await exchange.end_stream()
        else:
            await exchange.reader.gone.wait()

    server = legacy(special)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        await eventually(lambda: len(streams) == 3 and connection.state is ConnectionState.READY)
        assert connection.restarts == 1
        assert (await connection.call_tool("t")).text == "done"
    assert server.methods().count("initialize") == 2


LOST = [
    (404, b""),
    (400, b'{"jsonrpc": "2.0", "error": {"code": -32000, "message": "Bad Request: No valid session ID provided"}}'),
    (
        400,
        b'{"jsonrpc": "2.0", "error": {"code": -32000, "message": "Bad Request: Server not initialized"}, "id": null}',
    ),
    (400, b"Session s-1 has expired"),
]


@pytest.mark.parametrize(("status", "body"), LOST)
async def test_a_session_that_the_server_forgot_is_begun_again_once_and_no_call_is_lost(
    status: int, body: bytes
) -> None:
    forgotten = 1

    async def special(exchange: Exchange, message: Json) -> bool:
        nonlocal forgotten
        if message.get("method") != "tools/call" or not forgotten:
            return False
        forgotten -= 1
        await exchange.respond(status, body, content_type="application/json")
        return True

    server = legacy(special)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        assert (await connection.call_tool("t")).text == "done"
        assert connection.restarts == 1
    assert server.methods().count("initialize") == 2
    assert server.methods().count("tools/call") == 2


async def test_a_bad_request_that_is_not_about_the_session_leaves_it_alone() -> None:
    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        await exchange.respond(400, b"the tool's size must be even")

    server = legacy(special)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        with pytest.raises(ProtocolError, match=r"HTTP 400 .*must be even"):
            await connection.call_tool("t")
        assert connection.restarts == 0
    assert server.methods().count("initialize") == 1


@pytest.mark.slow
async def test_a_goodbye_that_is_not_answered_holds_up_nobody() -> None:
    asked, closed, released = anyio.Event(), anyio.Event(), anyio.Event()

    async def special(exchange: Exchange, message: Json) -> bool:
        if exchange.method != "DELETE":
            return False
        asked.set()
        await released.wait()
        return False

    async def close(connection: McpConnection) -> None:
        await connection.close()
        closed.set()

    target = {"timeout": {"close": 60}}
    async with (
        listening(legacy(special).handle) as (url, _),
        connected({"url": url, **target}, 40) as connection,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(close, connection)
        try:
            with anyio.fail_after(15):
                await closed.wait()
        finally:
            released.set()
    assert asked.is_set()


async def test_a_cancelled_call_is_over_at_once_however_slow_its_cancellation_is_taken() -> None:
    cancelled = anyio.Event()

    async def special(exchange: Exchange, message: Json) -> bool:
        match message.get("method"):
            case "tools/call" if not called.is_set():
                called.set()
                await exchange.reader.gone.wait()
            case "notifications/cancelled":
                cancelled.set()
                await exchange.reader.gone.wait()
            case _:
                return False
        return True

    called = anyio.Event()
    async with listening(legacy(special).handle) as (url, _), connected(url) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.call_tool, "t")
            await called.wait()
            tasks.cancel_scope.cancel()
        assert (await connection.call_tool("t")).text == "done"
        await cancelled.wait()


async def test_a_modern_call_is_cancelled_by_closing_its_stream_and_nothing_else() -> None:
    called, gone = anyio.Event(), anyio.Event()

    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        await exchange.start_stream()
        called.set()
        await exchange.reader.gone.wait()
        gone.set()

    server = modern(special)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.call_tool, "t")
            await called.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(10):
            await gone.wait()
        assert "notifications/cancelled" not in server.methods()


@pytest.mark.parametrize("status", [202, 204])
async def test_a_success_without_an_answer_loses_its_call_at_once(status: int) -> None:
    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        await exchange.respond(status)

    async with (
        listening(modern(special).handle) as (url, _),
        connected(url) as connection,
    ):
        result = await (await connection.list_tools())["t"].execute()
    assert result.error is not None
    assert result.error.kind is ErrorKind.OUTCOME_UNKNOWN
    assert f"answered a request with {status}" in result.text


async def test_events_that_are_no_message_do_not_cost_the_answer_behind_them() -> None:
    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        await exchange.start_stream()
        for text in ("{not json", "plain words", "[1]", answer_to(message)):
            await exchange.event(text)
        await exchange.end_stream()

    async with listening(modern(special).handle) as (url, _), connected(url) as connection:
        assert (await connection.call_tool("t")).text == "done"


async def test_an_answer_that_is_no_message_fails_its_call_though_the_stream_stays_open() -> None:
    left = anyio.Event()

    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        await exchange.start_stream()
        await exchange.event(answer_to(message)[:-3])
        await left.wait()

    async with listening(modern(special).handle) as (url, _), connected(url) as connection:
        with pytest.raises(ProtocolError, match="holds an event that is not a JSON-RPC message"):
            await connection.call_tool("t")
        left.set()
