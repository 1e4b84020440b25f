"""What one HTTP server may cost: memory, connections, time; on both lanes."""

from __future__ import annotations

import asyncio
import gzip
import json
import struct
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.connect.scripted import Exchange, HttpScript, answer_to, listening, modern_answer
from tests.connect.targets import Json, connected, eventually
from toolweave import ErrorKind, ToolError
from toolweave.connect._wire.event_streams import delay
from toolweave.errors import ServerError
from toolweave.http import HttpClient
from toolweave.protocol.sse import EventParser

MEGABYTE = 1_000_000


def modern(special: Callable[[Exchange, Json], Awaitable[None]]) -> HttpScript:
    """Serve one tool whose first call `special` answers; the later ones are answered well."""
    calls = 0

    async def first(exchange: Exchange, message: Json) -> bool:
        nonlocal calls
        if message.get("method") != "tools/call":
            return False
        calls += 1
        if calls > 1:
            return False
        await special(exchange, message)
        return True

    return HttpScript(modern_answer, first)


async def error_of_first_call(server: HttpScript, **options: Any) -> ToolError:
    """Return the error of the first call; the second one on the same connection works."""
    async with (
        listening(server.handle) as (url, _),
        connected({"url": url, **options}, 40) as connection,
    ):
        tool = (await connection.list_tools())["t"]
        result = await tool.execute()
        assert (await tool.execute()).text == "done"
        assert connection.restarts == 0
    assert result.error is not None
    return result.error


def bomb(encoding: str) -> bytes:
    """Return about 1 MB that becomes 1 GB of zeros."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = deflate.compress(bytes(MEGABYTE)) + deflate.flush(zlib.Z_FULL_FLUSH)
    head = gzip.compress(b"")[:10] if encoding == "gzip" else b"\x78\x9c"
    return head + block * 1000 + b"\x03\x00" + struct.pack("<II", 0, 0)


KINDS = ("application/json", "text/event-stream")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
@pytest.mark.parametrize("status", [200, 500])
async def test_a_bomb_is_refused_before_it_costs_memory(status: int, encoding: str, kind: str) -> None:
    body = bomb(encoding)

    async def special(exchange: Exchange, message: Json) -> None:
        await exchange.respond(status, body, content_type=kind, content_encoding=encoding)

    server = modern(special)
    tracemalloc.start()
    try:
        error = await error_of_first_call(server)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    said = "encoded as 'br'" if encoding == "br" else "more than 256 times as large"
    assert (said if status == 200 else "HTTP 500") in error.message
    assert peak < 50 * MEGABYTE
    assert {exchange.headers["accept-encoding"] for exchange in server.exchanges} == {"gzip, deflate"}
    if status == 200 and encoding != "br":
        assert error.kind is ErrorKind.TOO_LARGE


def packed(text: bytes, encoding: str) -> bytes:
    """Compress a text; `raw` is deflate without the head that it should have, `twice` gzip in two members."""
    match encoding:
        case "gzip":
            return gzip.compress(text)
        case "twice":
            return gzip.compress(text[:10]) + gzip.compress(text[10:])
        case "raw":
            deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
            return deflate.compress(text) + deflate.flush()
        case _:
            return zlib.compress(text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoding", ["gzip", "twice", "deflate", "raw"])
async def test_a_compressed_answer_is_read(encoding: str, kind: str) -> None:
    text = "compressed " * 50_000
    named = {"twice": "gzip", "raw": "deflate"}.get(encoding, encoding)

    async def special(exchange: Exchange, message: Json) -> None:
        said = answer_to(message, {"content": [{"type": "text", "text": text}]}).encode()
        body = packed(said if kind == KINDS[0] else b"data: " + said + b"\n\n", encoding)
        await exchange.respond(200, body, content_type=kind, content_encoding=named)

    async with (
        listening(modern(special).handle) as (url, _),
        connected(url, 40) as connection,
    ):
        assert (await connection.call_tool("t")).text == text


async def test_the_error_in_a_compressed_body_is_told() -> None:
    async def special(exchange: Exchange, message: Json) -> None:
        body = gzip.compress(b"the database is locked")
        await exchange.respond(500, body, content_type="text/plain", content_encoding="gzip")

    error = await error_of_first_call(modern(special))
    assert "HTTP 500" in error.message
    assert "the database is locked" in error.message


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("broken", ["cut off", "not valid gzip"])
async def test_a_compressed_body_that_is_broken_says_so(broken: str, kind: str) -> None:
    async def special(exchange: Exchange, message: Json) -> None:
        body = gzip.compress(answer_to(message).encode())[:-12] if broken == "cut off" else b"\x1f\x8b\x08 no gzip"
        await exchange.respond(200, body, content_type=kind, content_encoding="gzip")

    error = await error_of_first_call(modern(special))
    assert broken in error.message


async def test_events_of_a_compressed_stream_are_taken_as_they_come() -> None:
    heard: list[object] = []
    progressed = anyio.Event()

    async def special(exchange: Exchange, message: Json) -> None:
        token = message["params"]["_meta"]["progressToken"]
        note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}
        deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
        await exchange.start_stream(content_encoding="gzip")
        piece = deflate.compress(b"data: " + json.dumps(note).encode() + b"\n\n")
        await exchange.chunk(piece + deflate.flush(zlib.Z_SYNC_FLUSH))
        await progressed.wait()
        await exchange.chunk(deflate.compress(b"data: " + answer_to(message).encode() + b"\n\n") + deflate.flush())
        await exchange.end_stream()

    def note_progress(progress: object) -> None:
        heard.append(progress)
        progressed.set()

    async with listening(modern(special).handle) as (url, _), connected(url, 20) as connection:
        assert (await connection.call_tool("t", on_progress=note_progress)).text == "done"
    assert len(heard) == 1


@pytest.mark.parametrize("framing", ["length", "chunks", "end"])
async def test_an_answer_over_the_bound_names_the_bound_and_how_to_raise_it(framing: str) -> None:
    async def special(exchange: Exchange, message: Json) -> None:
        if framing == "length":
            exchange.head(200, {"content-type": "application/json", "content-length": str(50 * MEGABYTE)})
        elif framing == "chunks":
            exchange.head(200, {"content-type": "application/json", "transfer-encoding": "chunked"})
        else:
            exchange.head(200, {"content-type": "application/json", "connection": "close"})
        while not exchange.reader.gone.is_set():
            piece = b" " * 10_000
            exchange.writer.write(b"2710\r\n" + piece + b"\r\n" if framing == "chunks" else piece)
            await exchange.writer.drain()

    error = await error_of_first_call(modern(special), max_message_bytes=100_000)
    assert error.kind is ErrorKind.TOO_LARGE
    assert "larger than 100000 bytes" in error.message
    assert "'max_message_bytes'" in error.message
    assert not error.retryable


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["json", "sse"])
async def test_an_answer_of_many_megabytes_is_taken_whole(kind: str) -> None:
    text = "x" * (10 * MEGABYTE)

    async def special(exchange: Exchange, message: Json) -> None:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": text}]}}
        if kind == "json":
            await exchange.respond_json(200, answer)
        else:
            await exchange.start_stream()
            await exchange.event(json.dumps(answer))
            await exchange.end_stream()

    async with (
        listening(modern(special).handle) as (url, _),
        connected(url, 60) as connection,
    ):
        assert (await connection.call_tool("t")).text == text


async def test_headers_without_end_cost_their_call_only() -> None:
    async def special(exchange: Exchange, message: Json) -> None:
        exchange.writer.write(b"HTTP/1.1 200 OK\r\n")
        while not exchange.reader.gone.is_set():
            exchange.writer.write(b"x-more: " + b"y" * 1000 + b"\r\n")
            await exchange.writer.drain()

    error = await error_of_first_call(modern(special))
    assert "RemoteProtocolError" in error.message


@pytest.mark.slow
async def test_an_error_whose_text_never_ends_is_told_by_its_beginning() -> None:
    async def special(exchange: Exchange, message: Json) -> None:
        exchange.head(500, {"content-type": "text/plain", "content-length": "1000"})
        exchange.writer.write(b"the database is locked")
        await exchange.reader.gone.wait()

    error = await error_of_first_call(modern(special), timeout={"call": 30})
    assert error.kind is ErrorKind.PROTOCOL
    assert "HTTP 500" in error.message
    assert "the database is locked" in error.message


@pytest.mark.slow
@pytest.mark.parametrize(
    "drip",
    [b"HTTP/1.1 200 OK\r\nx: " + b"y" * 50, b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + b" " * 50],
)
async def test_an_answer_that_only_drips_ends_with_the_callers_deadline(drip: bytes) -> None:
    async def special(exchange: Exchange, message: Json) -> None:
        for byte in drip:
            exchange.writer.write(bytes([byte]))
            await exchange.writer.drain()
            with anyio.move_on_after(0.1):
                await exchange.reader.gone.wait()
                return

    error = await error_of_first_call(modern(special), timeout={"call": 0.5})
    assert error.kind is ErrorKind.TIMEOUT


# connections of the lean lane


def client(url: str, **options: Any) -> HttpClient:
    return HttpClient(url, connect_seconds=5, **options)


async def hello(exchange: Exchange) -> None:
    await exchange.respond(200, b"hello")


async def fetch(http: HttpClient, body: bytes = b"{}") -> bytes:
    with await http.send("POST", "/mcp", {}, body) as response:
        return await response.read(MEGABYTE)


async def streaming(exchange: Exchange) -> None:
    if exchange.method == "POST":
        await hello(exchange)
        return
    await exchange.start_stream()
    await exchange.reader.gone.wait()


async def test_streams_that_last_leave_the_connections_to_the_requests() -> None:
    with anyio.fail_after(10):
        async with listening(streaming) as (url, _):
            http = client(url, max_connections=1)
            streams = [await http.send("GET", "/mcp", {}, lasting=True) for _ in range(3)]
            assert [await fetch(http) for _ in range(3)] == [b"hello"] * 3
            for stream in streams:
                stream.close()
            assert await fetch(http) == b"hello"
            http.close()


async def test_a_request_waits_for_a_free_connection_as_long_as_its_caller_does() -> None:
    with anyio.fail_after(10):
        async with listening(streaming) as (url, connections):
            http = HttpClient(url, connect_seconds=0.01, max_connections=1)
            busy = await http.send("GET", "/mcp", {})
            with anyio.move_on_after(0.2) as waited:  # far longer than connecting may take
                await fetch(http)
            assert waited.cancelled_caught
            assert http.waiting == 0
            assert len(connections) == 1
            busy.close()
            http = client(url, max_connections=1)
            assert await fetch(http) == b"hello"
            http.close()


@pytest.mark.parametrize(("hint", "made"), [("timeout=1", 2), ("timeout=60, max=100", 1), ("max=5", 1)])
async def test_a_kept_connection_is_not_used_when_the_server_is_about_to_close_it(hint: str, made: int) -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.respond(200, b"hello", keep_alive=hint)

    with anyio.fail_after(10):
        async with listening(handle) as (url, connections):
            http = client(url)
            assert [await fetch(http), await fetch(http)] == [b"hello", b"hello"]
            assert len(connections) == made
            http.close()


@pytest.mark.slow
async def test_a_connection_whose_answer_came_before_the_request_was_sent_is_not_used_again() -> None:
    async def refuse(reader: Any, writer: Any) -> None:
        nonlocal connections
        connections += 1
        await reader.readline()
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
        await writer.drain()
        await over.wait()
        writer.close()

    connections, over = 0, asyncio.Event()
    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    with anyio.fail_after(10):
        http = client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        assert await fetch(http, bytes(30 * MEGABYTE)) == b"big"
        assert http.open_sockets == 0
        assert await fetch(http) == b"big"
        assert connections == 2
        http.close()
        over.set()
        server.close()


@given(st.integers(0, 100), st.none() | st.integers(0, 10**6))
def test_streams_are_opened_again_no_sooner_than_asked_and_never_in_a_tight_loop(
    failures: int, asked: int | None
) -> None:
    parser = EventParser(100)
    if asked is not None:
        parser.feed(f"retry: {asked}\n".encode())
    wait, wish = delay(parser, failures), 1.0 if asked is None else asked / 1000
    assert max(wish, 0.05) <= wait <= max(wish, 37.5)
    if failures > 10 and asked != 0:
        assert wait >= 20


def test_comments_in_a_stream_count_towards_no_event_even_without_a_blank_line_behind_them() -> None:
    parser = EventParser(100)
    for _ in range(50):
        assert parser.feed(b": still here\n") == []
    assert [event.data for event in parser.feed(b": and now\ndata: " + b"x" * 80 + b"\n\n")] == [b"x" * 80]
    parser.feed(b"data: " + b"x" * 80)
    with pytest.raises(ValueError, match="larger than 100 bytes"):
        parser.feed(b"y" * 80)


async def test_a_server_that_closes_kept_connections_costs_no_call() -> None:
    async def handle(exchange: Exchange) -> None:
        await hello(exchange)
        exchange.writer.close()

    with anyio.fail_after(10):
        async with listening(handle) as (url, _):
            http = client(url)
            for _ in range(5):
                assert await fetch(http) == b"hello"
                await eventually(lambda: http.open_sockets == 0)
            http.close()


async def test_one_broken_call_never_touches_its_neighbours() -> None:
    waiting: list[Exchange] = []

    async def special(exchange: Exchange, message: Json) -> bool:
        if message.get("method") != "tools/call":
            return False
        waiting.append(exchange)
        if len(waiting) < 4:
            await all_there.wait()
            return False
        await exchange.reset()
        return True

    texts: list[str] = []
    all_there = anyio.Event()
    async with (
        listening(HttpScript(modern_answer, special).handle) as (url, _),
        connected(url) as connection,
    ):

        async def call() -> None:
            texts.append((await connection.call_tool("t")).text)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(call)
            await eventually(lambda: len(waiting) == 3)
            with pytest.raises(ServerError):
                await connection.call_tool("t")
            all_there.set()
        assert texts == ["done"] * 3
