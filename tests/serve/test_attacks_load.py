"""Attacks on an endpoint's memory, time and sockets: too large, too deep, too slow, too many."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from tests.connect.targets import eventually
from tests.serve.exchanges import (
    Answer,
    call,
    call_body,
    connected,
    exchange,
    handshake,
    head,
    modern_headers,
    read_answer,
)
from tests.serve.offered import Doings, doing_server
from tests.serve.serving import served_http
from toolweave.serve._changes import PROMPTS, RESOURCES, TOOLS
from toolweave.serve._http.app import HttpLimits
from toolweave.serve._http.asgi import read_body

TEST_SECONDS = 60

HOUSEHOLD = {"shutdown_seconds": 2}


async def alive(url: str) -> bool:
    return (await call(url, "add", {"a": 1, "b": 2})).status == 200


async def test_a_body_that_declares_to_be_too_long_is_refused_before_it_is_sent() -> None:
    async with served_http(doing_server()) as url:
        async with connected(url) as stream:
            await stream.send(head(url, headers={**modern_headers("add"), "Content-Length": "100000000"}))
            answer = await read_answer(stream)
        assert await alive(url)

    assert answer.status == 413


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_body_without_a_length_is_read_to_the_limit_only(era: str) -> None:
    limits = HttpLimits(body_bytes=100_000, **HOUSEHOLD)
    headers = {**modern_headers("echo"), "Transfer-Encoding": "chunked"}
    if era == "legacy":
        headers = {"Content-Type": "application/json", "Accept": "*/*", "Transfer-Encoding": "chunked"}
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    sent = 0
    answer = None
    async with served_http(doing_server(), limits=limits) as url:
        async with connected(url) as stream, anyio.create_task_group() as tasks:

            async def pour() -> None:
                nonlocal sent
                try:
                    while sent < 100_000_000:
                        await stream.send(chunk)
                        sent += len(chunk)
                except anyio.BrokenResourceError:
                    pass

            await stream.send(head(url, headers=headers))
            tasks.start_soon(pour)
            answer = await read_answer(stream)
            tasks.cancel_scope.cancel()
        assert await alive(url)

    assert answer is not None
    assert answer.status == 413
    assert sent < 50_000_000, "what the sockets buffer, and no more"


async def test_a_body_without_a_length_that_comes_in_one_piece_is_bounded_as_well() -> None:
    limits = HttpLimits(body_bytes=1_000, **HOUSEHOLD)
    headers = {**modern_headers("echo"), "Transfer-Encoding": "chunked"}
    body = call_body("echo", {"text": "x" * 2_000})
    doings = Doings()
    async with served_http(doing_server(doings), limits=limits) as url, connected(url) as stream:
        await stream.send(head(url, headers=headers) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        answer = await read_answer(stream)

    assert answer.status == 413
    assert doings.calls == 0


async def test_no_more_of_a_body_is_held_than_the_limit_and_one_chunk() -> None:
    given = 0

    async def receive() -> dict[str, Any]:
        nonlocal given
        given += 1
        return {"type": "http.request", "body": b"x" * 1000, "more_body": True}

    assert await read_body(receive, 10_500) is None
    assert given == 11


async def test_a_body_within_the_limit_gets_through() -> None:
    text = "x" * 300_000
    async with served_http(doing_server()) as url:
        answer = await call(url, "echo", {"value": text})
        chunked = call_body("echo", {"value": text})
        headers = {**modern_headers("echo"), "Transfer-Encoding": "chunked", "Content-Length": "-"}
        body = b"%x\r\n" % len(chunked) + chunked + b"\r\n0\r\n\r\n"
        other = await exchange(url, headers=headers, body=body)

    assert (answer.status, other.status) == (200, 200)


@pytest.mark.parametrize("depth", [100_000, 2_000_000])
@pytest.mark.parametrize("pair", ["[]", '{"a":1}'], ids=["lists", "objects"])
async def test_deep_json_is_refused_and_the_server_lives(depth: int, pair: str) -> None:
    opening = pair[0] if pair == "[]" else '{"a":'
    depth = depth // len(opening)
    deep = opening * depth + "1" + pair[-1] * depth
    body = call_body("echo", {"value": "HERE"}).replace(b'"HERE"', deep.encode())
    async with served_http(doing_server()) as url:
        _, session = await handshake(url)
        modern = await exchange(url, headers=modern_headers("echo"), body=body)
        legacy = await exchange(url, headers=session, body=body)
        assert await alive(url)

    assert (modern.status, legacy.status) == (400, 400)


@pytest.mark.parametrize("depth", [50, 100, 200, 400, 800, 1600])
async def test_json_that_is_just_deep_enough_crashes_nothing(depth: int) -> None:
    body = call_body("echo", {"value": "HERE"}).replace(b'"HERE"', b"[" * depth + b"]" * depth)
    async with served_http(doing_server()) as url:
        _, session = await handshake(url)
        statuses = [(await exchange(url, headers=h, body=body)).status for h in (modern_headers("echo"), session)]
        assert await alive(url)

    assert set(statuses) <= {200, 400}


@pytest.mark.parametrize(
    "value", [b"1" * 1_000_000, b"1e999999", b"-" + b"9" * 5000, b'"' + b"\\u0000" * 1000 + b'"', b"NaN", b"1" * 4400]
)
async def test_odd_numbers_and_texts_crash_nothing(value: bytes) -> None:
    body = call_body("echo", {"value": "HERE"}).replace(b'"HERE"', value)
    async with served_http(doing_server()) as url:
        answer = await exchange(url, headers=modern_headers("echo"), body=body)
        assert await alive(url)

    assert answer.status in (200, 400)


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Large": "x" * 40_000},
        {"X-Large": "x" * 1_000_000},
        {f"X-{number}": "x" for number in range(200)},
        {f"X-{number}": "x" * 500 for number in range(90)},
        {"X-Same": "1" + "\r\nX-Same: 1" * 200},
    ],
    ids=["one large", "one huge", "many", "together", "the same"],
)
async def test_headers_are_bounded(headers: dict[str, str]) -> None:
    async with served_http(doing_server()) as url:
        answer = await call(url, "add", {"a": 1, "b": 2}, headers=headers)
        assert await alive(url)

    assert answer.status == 431


@pytest.mark.parametrize(
    ("large", "status"),
    [({"Content-Length": "200000"}, 413), ({"X-Large": "x" * 40_000}, 431)],
    ids=["body", "headers"],
)
async def test_what_follows_a_request_that_is_refused_for_its_size_is_not_read_as_another(
    large: dict[str, str], status: int
) -> None:
    doings = Doings()
    body = call_body("add", {"a": 1, "b": 2})
    limits = HttpLimits(body_bytes=100_000, keep_alive_seconds=300, **HOUSEHOLD)
    async with served_http(doing_server(doings), limits=limits) as url:
        sent = {**modern_headers("add"), "Connection": "keep-alive", "Content-Length": "0"}
        first = head(url, headers={**sent, **large})
        second = head(url, headers={**sent, "Content-Length": str(len(body))}) + body
        async with connected(url) as stream:
            await stream.send(first + second)
            answer = await read_answer(stream)  # to the end of the connection

    assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert doings.calls == 0


async def test_large_headers_get_through_where_they_are_allowed() -> None:
    limits = HttpLimits(header_bytes=200_000, header_count=300, **HOUSEHOLD)
    async with served_http(doing_server(), limits=limits) as url:
        answer = await call(url, "add", {"a": 1, "b": 2}, headers={"X-Large": "x" * 40_000})

    assert answer.status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Length": "5", "Transfer-Encoding": "chunked"},
        {"Content-Length": "5\r\nContent-Length: 6"},
        {"Content-Length": "-5"},
        {"Content-Length": "+5"},
        {"Content-Length": "5 5"},
        {"Transfer-Encoding": "xchunked"},
    ],
)
async def test_a_request_with_two_possible_ends_is_refused(headers: dict[str, str]) -> None:
    doings = Doings()
    smuggled = call_body("add", {"a": 1, "b": 2})
    async with served_http(doing_server(doings)) as url:
        answer = await exchange(url, headers={**modern_headers("add"), **headers}, body=b"0\r\n\r\n" + smuggled)

    assert answer.status in (400, 413)
    assert doings.calls == 0


@asynccontextmanager
async def slow_clients(url: str, count: int, said: bytes) -> AsyncGenerator[list[SocketStream]]:
    """Connect many clients that say a part of a request and then nothing."""
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(connected(url)) for _ in range(count)]
        for stream in streams:
            if said:
                await stream.send(said)
        yield streams


async def dropped(streams: list[SocketStream]) -> list[bytes]:
    """Wait until the server has dropped every one of them; return the bytes that it sent."""
    said: list[bytes] = []
    for stream in streams:
        try:
            said.append(b"".join([chunk async for chunk in stream]))
        except anyio.BrokenResourceError:
            said.append(b"")
    return said


@pytest.mark.slow
@pytest.mark.parametrize(
    "said",
    [b"", b"POST /mcp HT", b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-A: b\r\n"],
    ids=["nothing", "a line", "headers"],
)
async def test_clients_that_never_finish_their_headers_are_dropped_while_others_are_served(said: bytes) -> None:
    limits = HttpLimits(header_seconds=1, **HOUSEHOLD)
    async with served_http(doing_server(), limits=limits) as url, slow_clients(url, 300, said) as streams:
        assert await alive(url)
        answers = await dropped(streams)

    assert len(answers) == 300
    assert {answer.split(b"\r\n")[0] for answer in answers} <= {b"HTTP/1.1 408 Request Timeout", b""}


@pytest.mark.slow
async def test_a_client_that_drips_its_headers_is_dropped_all_the_same() -> None:
    limits = HttpLimits(header_seconds=0.5, **HOUSEHOLD)
    async with served_http(doing_server(), limits=limits) as url, connected(url) as stream:
        await stream.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n")
        with pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream)):
            while True:
                await stream.send(b"X-A: b\r\n")
                with anyio.move_on_after(0.05):
                    await stream.receive()


@pytest.mark.slow
async def test_headers_that_never_end_are_refused_once_they_are_too_large() -> None:
    limits = HttpLimits(header_seconds=300, **HOUSEHOLD)
    async with served_http(doing_server(), limits=limits) as url, connected(url) as stream:
        sent = 0
        try:
            await stream.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-A: ")
            while sent < 10_000_000:
                await stream.send(b"x" * 10_000)
                sent += 10_000
        except anyio.BrokenResourceError:
            pass
        assert await alive(url)

    assert sent < 10_000_000


async def test_slow_headers_get_through_where_they_have_the_time() -> None:
    body = call_body("add", {"a": 1, "b": 2})
    request = head("http://localhost/mcp", headers={**modern_headers("add"), "Content-Length": str(len(body))}) + body
    limits = HttpLimits(header_seconds=60, **HOUSEHOLD)
    async with served_http(doing_server(), limits=limits) as url, connected(url) as stream:
        for part in (request[:30], request[30:80], request[80:]):
            await stream.send(part)
            await alive(url)
        answer = await read_answer(stream)

    assert answer.status == 200


@pytest.mark.slow
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_clients_that_never_finish_their_body_are_dropped(era: str) -> None:
    limits = HttpLimits(body_seconds=0.5, **HOUSEHOLD)
    async with served_http(doing_server(), limits=limits) as url:
        kind = {"Content-Type": "application/json", "Accept": "*/*", "Content-Length": "500"}
        request = head(url, headers={**modern_headers("add"), **kind} if era == "modern" else kind) + b'{"jsonrpc":'
        async with slow_clients(url, 50, request) as streams:
            assert await alive(url)
            answers = await dropped(streams)

    assert {answer.split(b"\r\n")[0] for answer in answers} == {b"HTTP/1.1 408 Request Timeout"}


async def test_an_idle_connection_is_closed() -> None:
    limits = HttpLimits(keep_alive_seconds=0.2, **HOUSEHOLD)
    body = call_body("add", {"a": 1, "b": 2})
    headers = {**modern_headers("add"), "Content-Length": str(len(body)), "Connection": "keep-alive"}
    async with served_http(doing_server(), limits=limits) as url, connected(url) as stream:
        await stream.send(head(url, headers=headers) + body)
        (said,) = await dropped([stream])

    assert said.startswith(b"HTTP/1.1 200")


async def test_a_second_request_that_never_comes_whole_is_dropped_too() -> None:
    limits = HttpLimits(header_seconds=0.3, keep_alive_seconds=300, **HOUSEHOLD)
    body = call_body("add", {"a": 1, "b": 2})
    headers = {**modern_headers("add"), "Content-Length": str(len(body)), "Connection": "keep-alive"}
    async with served_http(doing_server(), limits=limits) as url, connected(url) as stream:
        await stream.send(head(url, headers=headers) + body)
        said = b""
        while b'"result"' not in said:
            said += await stream.receive()
        await stream.send(b"POST /mcp HTTP/1.1\r\n")
        (rest,) = await dropped([stream])

    assert b" 408 " in rest


async def test_connections_are_bounded_and_the_server_recovers() -> None:
    limits = HttpLimits(connections=20, header_seconds=300, **HOUSEHOLD)
    async with served_http(doing_server(), limits=limits) as url:
        async with slow_clients(url, 30, b"POST /mcp HTTP/1.1\r\nHost"):
            answer = await call(url, "add", {"a": 1, "b": 2})
        await eventually(lambda: alive(url), 30)

    assert answer.status == 503


async def test_idle_connections_keep_nobody_out_and_those_that_were_idle_for_longest_are_closed() -> None:
    limits = HttpLimits(connections=20, header_seconds=300, **HOUSEHOLD)
    async with (
        served_http(doing_server(), limits=limits) as url,
        slow_clients(url, 10, b""),
        connected(url) as kept,
    ):
        empty = head(url, headers={**modern_headers("add"), "Connection": "keep-alive", "Content-Length": "0"})
        await kept.send(empty)
        assert b" 400 " in await kept.receive()  # it has asked something, and is idle since then only
        async with slow_clients(url, 15, b""):
            answers = [await call(url, "add", {"a": 1, "b": 2}) for _ in range(3)]
            await kept.send(empty)
            assert b" 400 " in await kept.receive()

    assert [answer.status for answer in answers] == [200] * 3


@pytest.mark.slow
async def test_many_calls_at_once_are_all_answered() -> None:
    answers: list[Answer] = []

    async def one(url: str) -> None:
        answers.append(await call(url, "add", {"a": 1, "b": 2}))

    async with served_http(doing_server()) as url, anyio.create_task_group() as tasks:
        for _ in range(200):
            tasks.start_soon(one, url)

    assert [json.loads(answer.body)["result"]["content"][0]["text"] for answer in answers] == ["3"] * 200


@asynccontextmanager
async def unread_changes(limits: HttpLimits) -> AsyncGenerator[tuple[SocketStream, Callable[[], Awaitable[None]]]]:
    """Fill the stream of a session that reads nothing; yield it, and a function that announces more changes."""
    server = doing_server()

    async def announce() -> None:
        for _ in range(100):
            for topic in (TOOLS, PROMPTS, RESOURCES):
                server.changes.publish(topic, {"_meta": {"much": "x" * 500_000}})
            await anyio.sleep(0.005)  # or they become one change

    async with served_http(server, limits=limits) as url:
        _, session = await handshake(url)
        server.changes.debounce = 0
        async with connected(url) as stream:
            await stream.send(head(url, "GET", session))
            assert b"200 OK" in await stream.receive()
            await announce()
            yield stream, announce


@pytest.mark.slow
async def test_changes_that_a_client_does_not_read_do_not_pile_up() -> None:
    async with unread_changes(HttpLimits(shutdown_seconds=2)) as (_, announce):
        filled = len(anyio.get_running_tasks())
        for _ in range(4):
            await announce()
        assert len(anyio.get_running_tasks()) < filled + 20


@pytest.mark.slow
async def test_a_stream_of_changes_that_nobody_reads_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    async with unread_changes(HttpLimits(shutdown_seconds=2, stalled_seconds=0.5)) as (stream, _):
        await eventually(lambda: "left its stream unread" in caplog.text)
        async for _ in stream:
            pass


async def test_a_progress_token_that_is_too_long_to_be_repeated_is_refused() -> None:
    async with served_http(doing_server()) as url:
        kept = await call(url, "add", {"a": 1, "b": 2}, meta={"progressToken": "t" * 1_024})
        refused = await call(url, "add", {"a": 1, "b": 2}, meta={"progressToken": "t" * 1_025})

    assert kept.status == 200
    assert refused.status == 400
    assert b"1,024 characters" in refused.body


@pytest.mark.parametrize(
    "target, status", [("http://evil.test/mcp", 421), ("{url}", 200), ("HTTP://EVIL.test/mcp", 421)]
)
async def test_the_host_of_an_absolute_target_counts_and_not_the_header(target: str, status: int) -> None:
    body = call_body("add", {"a": 1, "b": 2})
    async with served_http(doing_server()) as url:
        host = url.split("/")[2]
        headers = {"Host": host, "Content-Length": str(len(body)), "Connection": "close", **modern_headers("add")}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        async with connected(url) as stream:
            await stream.send(f"POST {target.format(url=url)} HTTP/1.1\r\n{lines}\r\n".encode() + body)
            answer = await read_answer(stream)

    assert answer.status == status
