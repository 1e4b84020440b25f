"""The parts of our own HTTP lane: the event parser, the client with its pool, the mirrored headers."""

from __future__ import annotations

import itertools
import socket
import ssl
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import inbound

from tests.connect.proxying import certificate
from tests.connect.scripted import Exchange, Handler, listening
from tests.connect.targets import Json, eventually
from toolweave.http import HttpClient, Socket, TransportError
from toolweave.protocol.headers import argument_headers, encode_value, mirrored_arguments, mirroring_problem
from toolweave.protocol.sse import EventParser, ServerSentEvent


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(places)]


CUTS = st.lists(st.integers(min_value=0, max_value=10_000), max_size=12)
LINES = st.lists(
    st.sampled_from(["data: a", "data:b", "data", "data:  c: d", "id: 7", "id", "event: ping", ": hm", "retry: 50", ""])
    | st.text("adt: é\ufeff", max_size=6),
    max_size=12,
)


def events_by_the_book(lines: list[str]) -> tuple[list[ServerSentEvent], str | None]:
    """Read whole lines as the HTML standard words it."""
    events: list[ServerSentEvent] = []
    data: list[str] = []
    kind, last = "", None
    seen: str | None = None
    for line in lines:
        if not line:
            last = seen if seen is not None else last
            if data and "\n".join(data):
                events.append(ServerSentEvent(kind or "message", "\n".join(data).encode()))
            data, kind, seen = [], "", None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                data.append(value)
            case "event":
                kind = value
            case "id":
                seen = value
            case _:
                pass
    return events, last or None


@pytest.mark.slow
@given(LINES, st.sampled_from(["\n", "\r\n", "\r"]), CUTS, st.booleans())
def test_events_are_the_same_in_whatever_pieces_they_come(
    lines: list[str], end: str, cuts: list[int], bom: bool
) -> None:
    if lines and not bom:
        lines[0] = lines[0].lstrip("\ufeff")
    text = ("\ufeff" if bom else "") + "".join(line + end for line in lines)
    parser = EventParser(10_000)
    events = [event for piece in pieces_of(text.encode(), cuts) for event in parser.feed(piece)]
    assert (events, parser.last_id) == events_by_the_book(lines)
    assert parser.taken == len(events)
    assert parser.resumed().last_id == parser.last_id


def test_a_wait_that_is_a_number_is_taken_and_any_other_is_not() -> None:
    parser = EventParser(100)
    parser.feed(b"retry: 1500\nretry: soon\nretry: 99999999999\n")
    assert parser.retry_seconds == 1.5
    assert parser.resumed().retry_seconds == 1.5


def test_an_event_over_the_bound_is_refused_but_comments_cost_nothing() -> None:
    parser = EventParser(100)
    for _ in range(100):
        parser.feed(b": still here\n")
    with pytest.raises(ValueError, match="larger than 100 bytes"):
        parser.feed(b"data: " + b"x" * 100)


@pytest.mark.slow
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), CUTS, st.booleans())
def test_a_chunked_body_is_the_same_in_whatever_pieces_it_comes(
    chunks: list[bytes], cuts: list[int], more: bool
) -> None:
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\ntransfer-encoding: chunked\r\n\r\n"
    socket = Socket()
    for piece in pieces_of((b"HTTP/1.1 103 Hints\r\nx-a: 0\r\n\r\n" if more else b"") + head + body, cuts):
        socket.get_buffer(-1)[: len(piece)] = piece
        socket.buffer_updated(len(piece))
    assert socket.complete
    assert socket.reusable
    assert (socket.head.status, socket.head.reason, socket.head.headers["x-a"]) == (200, "OK", "1, 2")
    assert b"".join(socket.pieces) == b"".join(chunks)


def client(url: str, **options: Any) -> HttpClient:
    return HttpClient(url, connect_seconds=5, **options)


async def fetch(http: HttpClient, *, repeatable: bool = False) -> bytes:
    with await http.send("POST", "/mcp", {}, b"{}", repeatable=repeatable) as response:
        return await response.read(1_000_000)


def raw(answer: bytes) -> Handler:
    async def handle(exchange: Exchange) -> None:
        exchange.writer.write(answer)
        await exchange.writer.drain()

    return handle


async def hello(exchange: Exchange) -> None:
    await exchange.respond(200, b"hello")


async def test_many_requests_at_once_share_few_connections_that_are_kept() -> None:
    with anyio.fail_after(10):
        async with listening(hello) as (url, connections):
            http = client(url, max_connections=4)
            async with anyio.create_task_group() as tasks:
                for _ in range(50):
                    tasks.start_soon(fetch, http)
            assert len(connections) == http.open_sockets == 4
            assert await fetch(http) == b"hello"
            assert len(connections) == 4
            http.close()
            assert http.open_sockets == 0


@pytest.mark.slow
async def test_as_many_connections_are_kept_as_were_used_until_they_have_been_idle_for_too_long() -> None:
    arrived = 0
    all_there = anyio.Event()
    seconds = 60

    async def handle(exchange: Exchange) -> None:
        nonlocal arrived
        arrived += 1
        if arrived == 30:
            all_there.set()
        await all_there.wait()
        await exchange.respond(200, b"hello", keep_alive=f"timeout={seconds}")

    with anyio.fail_after(10):
        async with listening(handle) as (url, connections):
            http = client(url)
            async with anyio.create_task_group() as tasks:
                for _ in range(30):
                    tasks.start_soon(fetch, http)
            assert http.open_sockets == len(connections) == 30
            seconds = 2
            async with anyio.create_task_group() as tasks:
                for _ in range(30):
                    tasks.start_soon(fetch, http)
            assert len(connections) == 30
            await eventually(lambda: http.open_sockets == 0)
            http.close()


async def test_a_kept_connection_that_the_server_closed_meanwhile_is_not_used() -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.respond(200, b"hello")
        exchange.writer.close()

    with anyio.fail_after(10):
        async with listening(handle) as (url, connections):
            http = client(url)
            assert await fetch(http) == b"hello"
            await eventually(lambda: http.open_sockets == 0)
            assert await fetch(http) == b"hello"
            assert len(connections) == 2
            http.close()


@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_kept_connection_that_breaks_without_a_word_is_replaced_once_for_what_may_be_repeated(
    repeatable: bool,
) -> None:
    seen = 0

    async def handle(exchange: Exchange) -> None:
        nonlocal seen
        seen += 1
        if seen == 2:
            await exchange.reset()
        else:
            await exchange.respond(200, b"hello")

    with anyio.fail_after(10):
        async with listening(handle) as (url, _):
            http = client(url)
            await fetch(http)
            if repeatable:
                assert await fetch(http, repeatable=True) == b"hello"
            else:
                with pytest.raises(TransportError) as broken:
                    await fetch(http)
                assert broken.value.sent
            assert seen == (3 if repeatable else 2)
            http.close()


async def test_a_new_connection_that_breaks_is_not_tried_again() -> None:
    seen = 0

    async def handle(exchange: Exchange) -> None:
        nonlocal seen
        seen += 1
        await exchange.reset()

    async with listening(handle) as (url, _):
        with pytest.raises(TransportError, match="ReadError"):
            await fetch(client(url), repeatable=True)
    assert seen == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH_9\r\n", "RemoteProtocolError"),
        (b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n", "another protocol"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000, "headers are larger than"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort", "without sending complete message body"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel", "without sending complete message body"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n", "RemoteProtocolError"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"z" * 1_000_001, "larger than 1000000 bytes"),
        (b"", "disconnected without sending a response"),
    ],
)
async def test_what_is_no_whole_answer_is_an_error_that_says_why(answer: bytes, words: str) -> None:
    with anyio.fail_after(10):
        async with listening(raw(answer)) as (url, _):
            http = client(url)
            with pytest.raises(TransportError, match=words):
                await fetch(http)
            assert http.open_sockets == 0


async def test_a_body_that_ends_with_the_connection_is_whole_and_a_second_answer_is_nobodys() -> None:
    with anyio.fail_after(10):
        async with listening(raw(b"HTTP/1.0 200 OK\r\n\r\nto the end")) as (url, _):
            assert await fetch(client(url)) == b"to the end"
        twice = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok" * 2
        async with listening(raw(twice)) as (url, connections):
            http = client(url)
            assert [await fetch(http), await fetch(http)] == [b"ok", b"ok"]
            assert len(connections) == 2
            http.close()


async def test_a_body_larger_than_the_reader_takes_at_once_arrives_whole() -> None:
    body = bytes(range(256)) * 20_000

    async def handle(exchange: Exchange) -> None:
        await exchange.respond(200, body)

    with anyio.fail_after(20):
        async with listening(handle) as (url, _):
            http = client(url)
            with await http.send("GET", "/", {}) as response:
                await anyio.wait_all_tasks_blocked()
                assert await response.read(len(body)) == body
                response.finish()
                response.finish()
            http.close()


async def test_a_stream_whose_end_comes_after_the_answer_leaves_its_connection_for_the_next() -> None:
    let_go = anyio.Event()

    async def handle(exchange: Exchange) -> None:
        await exchange.start_stream()
        await exchange.chunk(b"data: 1\n\n")
        await let_go.wait()
        await exchange.end_stream()

    with anyio.fail_after(10):
        async with listening(handle) as (url, connections):
            http = client(url)
            for _ in range(2):
                response = await http.send("POST", "/", {})
                assert await response.piece() == b"data: 1\n\n"
                response.finish()
                assert await response.piece() == b""
                let_go.set()
                await eventually(lambda: bool(http._idle))
            assert len(connections) == 1
            http.close()


@pytest.mark.slow
async def test_a_stream_that_does_not_end_loses_its_connection_soon() -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.start_stream()
        await exchange.chunk(b"x")
        await exchange.reader.gone.wait()

    with anyio.fail_after(10):
        async with listening(handle) as (url, _):
            http = client(url)
            response = await http.send("POST", "/", {})
            assert await response.piece() == b"x"
            response.finish()
            await eventually(lambda: http.open_sockets == 0)


@pytest.mark.parametrize("headers", [{"x-a": "1\r\nx-b: 2"}, {"x a": "1"}, {"x-a": "\0"}])
async def test_a_header_that_would_be_two_is_refused_without_its_value(headers: dict[str, str]) -> None:
    with pytest.raises(TransportError, match="cannot be sent") as refused:
        await client("http://127.0.0.1:9/").send("POST", "/", headers)
    assert not refused.value.sent
    assert headers.get("x-a", "-") not in str(refused.value)


async def test_a_name_that_cannot_be_resolved_and_a_port_that_does_not_answer_are_not_sent() -> None:
    for url in ("http://no-such-host.invalid/", "http://\u00e9\u00e9.invalid/", "http://[::1]:9/"):
        with pytest.raises(TransportError, match="ConnectError") as refused:
            await client(url).send("GET", "/", {})
        assert not refused.value.sent


async def test_connecting_is_bounded() -> None:
    async def never(exchange: Exchange) -> None: ...

    with anyio.fail_after(10):
        async with listening(never) as (url, _):  # speaks no TLS and waits for a request
            http = HttpClient(url.replace("http:", "https:"), connect_seconds=0.2)
            with pytest.raises(TransportError, match=r"ConnectTimeout|ConnectError") as refused:
                await http.send("GET", "/", {})
    assert not refused.value.sent


async def test_a_connection_that_was_taken_when_the_server_ended_is_closed_too() -> None:
    async def never(exchange: Exchange) -> None: ...

    async with listening(never) as (url, connections):
        visitor = socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=20)
        for _ in range(2):  # then the loop has taken it, and nobody was told
            await anyio.lowlevel.checkpoint()
        assert connections == []
    with visitor:
        assert await anyio.to_thread.run_sync(visitor.recv, 1) == b""


async def test_tls_is_spoken_with_servers_of_known_certificates_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(file)
    with anyio.fail_after(20):
        async with listening(hello, tls) as (url, connections):
            with pytest.raises(TransportError, match="CERTIFICATE_VERIFY_FAILED") as refused:
                await fetch(client(url))
            assert not refused.value.sent
            monkeypatch.setenv("SSL_CERT_FILE", str(file))
            http = client(url)
            assert [await fetch(http), await fetch(http)] == [b"hello", b"hello"]
            assert len(connections) <= 2
            http.close()


TEXT = st.text(max_size=12) | st.sampled_from(["", "=?base64?YQ==?=", " a", "a ", "plain", "a\tb", "=?base64?x"])


@given(TEXT)
def test_header_values_are_encoded_as_the_official_sdk_reads_them(value: str) -> None:
    assert inbound.decode_header_value(encode_value(value)) == value
    assert encode_value(value) == inbound.encode_header_value(value)


NAMES = st.sampled_from(["Region", "region", "bad name", "", "X", 7])
KINDS = st.sampled_from(["string", "integer", "boolean", "number", ["string"], None])


def annotated(name: object, kind: object) -> Json:
    return {"type": kind, "x-mcp-header": name}


PLAIN: Json = {"type": "string"}
LEAF = st.builds(annotated, NAMES, KINDS) | st.just(PLAIN)


def deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    one = st.sampled_from(["items", "not", "additionalProperties", "default"])
    many = st.sampled_from(["anyOf", "prefixItems", "enum"])
    named = st.sampled_from(["properties", "properties", "properties", "$defs", "patternProperties"])
    return (
        st.dictionaries(one, inner, max_size=2)
        | st.dictionaries(many, st.lists(inner, max_size=2), max_size=1)
        | st.dictionaries(named, st.dictionaries(st.sampled_from("ab"), inner, max_size=2), max_size=1)
    )


ARGUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.dictionaries(st.sampled_from("ab"), inner) | st.lists(inner, max_size=1),
    max_leaves=5,
)


@pytest.mark.slow
@given(st.recursive(LEAF, deeper, max_leaves=6), ARGUMENTS)
def test_schemas_and_arguments_are_mirrored_as_the_official_sdk_does(schema: Any, arguments: Any) -> None:
    ours, theirs = mirroring_problem(schema), inbound.find_invalid_x_mcp_header(schema)
    assert (ours is None) == (theirs is None)
    if ours is None and isinstance(arguments, dict):
        named = cast("Json", arguments)
        expected = inbound.mcp_param_headers(inbound.x_mcp_header_map(schema), named)
        made = argument_headers(mirrored_arguments(schema), arguments)
        assert made == {name.lower(): value for name, value in expected.items()}
    else:
        assert argument_headers(mirrored_arguments({}), arguments) == {}


def test_a_number_with_more_digits_than_python_writes_is_not_mirrored() -> None:
    schema = {"properties": {"a": {"type": "integer", "x-mcp-header": "A"}}}
    assert argument_headers(mirrored_arguments(schema), {"a": 10**5000}) == {}


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"a": {"type": "string", "x-mcp-header": "bad name"}}, "property 'a': x-mcp-header is not a header name"),
        ({"a": {"type": "number", "x-mcp-header": "A"}}, "property 'a': x-mcp-header needs a type of boolean"),
        ({"a": {"items": {"type": "string", "x-mcp-header": "A"}}}, "no chain of properties"),
        (
            {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"properties": {"c": annotated("a", "string")}}},
            "is the header of property",
        ),
    ],
)
def test_a_schema_that_is_refused_is_told_why(properties: Json, words: str) -> None:
    assert words in str(mirroring_problem({"type": "object", "properties": properties}))


async def test_a_client_that_is_closed_sends_nothing_of_what_waits_for_a_connection() -> None:
    seen: list[Exchange] = []
    waiting: list[TransportError] = []

    async def handler(exchange: Exchange) -> None:
        seen.append(exchange)
        await exchange.reader.gone.wait()

    async def send() -> None:
        with pytest.raises(TransportError) as lost:
            await client.send("POST", "/mcp", {}, b"{}")
        waiting.append(lost.value)

    async with listening(handler) as (url, _):
        client = HttpClient(url, connect_seconds=30, max_connections=1)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(send)
                await eventually(lambda: seen and client.waiting == 2)
                client.close()
        assert len(seen) == 1
        assert [lost.sent for lost in waiting] == [True, False, False]
        assert client.open_sockets == 0


async def test_a_client_that_is_closed_while_it_connects_keeps_no_connection() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.respond(200)

    async def send() -> None:
        with pytest.raises(TransportError, match="closed") as lost:
            await client.send("POST", "/mcp", {}, b"{}")
        assert not lost.value.sent

    async with listening(handler) as (url, _):
        client = HttpClient(url, connect_seconds=30)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            await anyio.lowlevel.checkpoint()  # begins to connect
            client.close()
        assert client.open_sockets == 0
