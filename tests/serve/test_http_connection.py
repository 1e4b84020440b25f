"""HTTP/1.1 as `serve_http` reads and writes it: requests that are odd, apps that fail, and connections that end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from tests.serve.exchanges import Answer, call_body, connected, exchange, head, modern_headers
from tests.serve.offered import Doings, doing_server
from tests.serve.serving import served_http
from toolweave.serve._http.app import HttpLimits

GARBAGE = b"\x00 is not a request\r\n\r\n"


def call_of(
    url: str,
    tool: str = "add",
    headers: dict[str, str] | None = None,
    *,
    is_chunked: bool = False,
    **arguments: Any,
) -> bytes:
    """Return the bytes of a call on a connection that is kept."""
    body = call_body(tool, arguments or ({"a": 1, "b": 2} if tool == "add" else {}))
    sent = {**modern_headers(tool), "Connection": "-", "Content-Length": str(len(body)), **(headers or {})}
    if is_chunked:
        sent |= {"Content-Length": "-", "Transfer-Encoding": "chunked"}
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return head(url, headers=sent) + body


async def all_received(url: str, sent: bytes) -> bytes:
    """Send bytes on a connection and return everything until the server closes it."""
    received = b""
    with anyio.fail_after(30):
        async with connected(url) as stream:
            await stream.send(sent)
            try:
                async for piece in stream:
                    received += piece
            except anyio.BrokenResourceError:
                pass
    return received


async def one_response(stream: SocketStream) -> bytes:
    """Return the bytes of one response that has a length, read byte by byte: another one may follow."""
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        received += await stream.receive(1)
    length = int(received.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    for _ in range(length):
        received += await stream.receive(1)
    return received


def answering(answer: Callable[[Any, Any, Any], Awaitable[None]]) -> Any:
    """Return middleware that answers every request itself."""

    def wrap(app: Any) -> Any:
        async def answered(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                await answer(scope, receive, send)
            else:
                await app(scope, receive, send)

        return answered

    return wrap


# requests


async def test_many_pipelined_requests_are_answered_in_order() -> None:
    async with served_http(doing_server()) as url, connected(url) as stream:
        await stream.send(b"".join(call_of(url, a=number, b=0) for number in range(100)))
        received = b""
        while received.count(b"HTTP/1.1 200 OK") < 100 or not received.endswith(b"}"):
            received += await stream.receive()

    sums = [int(part.partition(b'"')[0]) for part in received.split(b'"text":"')[1:]]
    assert sums == list(range(100))


async def test_bytes_that_are_not_a_request_are_refused_after_the_responses_that_are_due() -> None:
    async with served_http(doing_server()) as url:
        received = await all_received(url, call_of(url) + GARBAGE)
        alone = await all_received(url, GARBAGE)

    assert received.startswith(b"HTTP/1.1 200 OK")
    assert received.count(b"HTTP/1.1") == 1
    assert b"connection: close" in received
    assert received.endswith(b"}")
    assert alone.startswith(b"HTTP/1.1 400 ")


async def test_a_body_that_is_malformed_in_the_middle_ends_its_request_only() -> None:
    doings = Doings()
    async with served_http(doing_server(doings)) as url:
        sent = {**modern_headers("add"), "Connection": "-", "Transfer-Encoding": "chunked"}
        broken = head(url, headers=sent) + b'5\r\n{"a":\r\nnot a length\r\n'
        alone = await all_received(url, broken)
        behind = await all_received(url, call_of(url) + broken)

    assert alone.startswith(b"HTTP/1.1 400 ")
    assert behind.startswith(b"HTTP/1.1 200 OK")
    assert behind.endswith(b"}")
    assert doings.calls == 1


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_an_offer_of_another_protocol_is_ignored_and_the_body_behind_it_is_read(protocol: str, size: int) -> None:
    async with served_http(doing_server()) as url, connected(url) as stream:
        offer = call_of(url, headers={"Connection": "Upgrade", "Upgrade": protocol})
        chunked = call_of(url, a=20, b=1, headers={"Connection": "Upgrade", "Upgrade": protocol}, is_chunked=True)
        sent = offer + chunked + call_of(url, a=20, b=3)
        for begin in range(0, len(sent), size):
            await stream.send(sent[begin : begin + size])
        received = [await one_response(stream) for _ in range(3)]

    assert [b"HTTP/1.1 200 OK" in one for one in received] == [True] * 3
    assert [text in one for one, text in zip(received, (b'"3"', b'"21"', b'"23"'), strict=True)] == [True] * 3


async def test_a_trailer_does_not_become_a_header() -> None:
    seen: list[dict[bytes, bytes]] = []

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        seen.append(dict(scope["headers"]))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with served_http(doing_server(), middleware=[answering(answer)]) as url:
        sent = {**modern_headers("add"), "Transfer-Encoding": "chunked", "Trailer": "x-late"}
        received = await all_received(url, head(url, headers=sent) + b"2\r\n{}\r\n0\r\nx-late: 1\r\n\r\n")

    assert received.startswith(b"HTTP/1.1 204 No Content\r\n")
    assert b"x-late" not in seen[0]


async def test_an_empty_line_before_a_request_is_ignored() -> None:
    async with served_http(doing_server()) as url, connected(url) as stream:
        await stream.send(b"\r\n")
        await anyio.wait_all_tasks_blocked()
        await stream.send(call_of(url))
        received = await one_response(stream)

    assert received.startswith(b"HTTP/1.1 200 OK")


async def test_a_client_that_waits_for_continue_gets_it_before_the_response() -> None:
    async with served_http(doing_server()) as url, connected(url) as stream:
        start, _, body = call_of(url, headers={"Expect": "100-continue"}).partition(b"\r\n\r\n")
        await stream.send(start + b"\r\n\r\n")
        assert await stream.receive() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await stream.send(body)
        received = await one_response(stream)

    assert received.startswith(b"HTTP/1.1 200 OK")


async def test_no_continue_is_written_into_a_response_that_has_begun() -> None:
    async def early(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        await receive()
        await send({"type": "http.response.body", "body": b"ended"})

    async with served_http(doing_server(), middleware=[answering(early)]) as url:
        sent = call_of(url, headers={"Expect": "100-continue", "Connection": "close"})
        received = await all_received(url, sent)

    assert b"begun" in received
    assert b"ended" in received
    assert received.count(b"HTTP/1.1") == 1


@pytest.mark.slow
async def test_a_head_that_does_not_arrive_in_time_does_not_cut_off_the_response_before_it() -> None:
    doings = Doings()
    limits = HttpLimits(header_seconds=0.2, shutdown_seconds=2)
    async with served_http(doing_server(doings), limits=limits) as url, connected(url) as stream:
        with anyio.fail_after(30):
            await stream.send(call_of(url, "wait") + b"POST /mcp HTTP/1.1\r\nHost: a")
            await doings.started.wait()
            await anyio.sleep(1)
            doings.release.set()
            received = b"".join([piece async for piece in stream])

    assert received.startswith(b"HTTP/1.1 200 OK")
    assert received.count(b"HTTP/1.1") == 1
    assert received.endswith(b"}")


@pytest.mark.slow
async def test_a_client_that_leaves_cancels_its_call_although_another_request_waits_behind_it() -> None:
    doings = Doings()
    async with served_http(doing_server(doings)) as url:
        with anyio.fail_after(30):
            async with connected(url) as stream:
                await stream.send(call_of(url, "wait") + call_of(url))
                await doings.started.wait()
            await doings.cancelled.wait()

    assert doings.calls == 0, "the request that waited did not begin"


# responses


async def answer_of(answer: Any, version: str = "1.1", method: str = "POST") -> bytes:
    """Return everything that a server sends in response to one request that middleware answers."""
    async with served_http(doing_server(), middleware=[answering(answer)]) as url:
        sent = call_of(url, headers={"Connection": "close"}).replace(b" HTTP/1.1", f" HTTP/{version}".encode(), 1)
        return await all_received(url, sent)


def sending(*messages: Any) -> Any:
    """Return an app that sends these messages, and raises those that are exceptions."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            if isinstance(message, Exception):
                raise message
            await send(message)

    return answer


def start(status: int = 200, *headers: tuple[bytes, bytes]) -> Any:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def part(body: bytes, *, more: bool = False) -> Any:
    return {"type": "http.response.body", "body": body, "more_body": more}


FAILED = ValueError("a secret of the app")


@pytest.mark.parametrize(
    "messages",
    [(), (FAILED,), (part(b"x"),), ({"type": "http.response.push"},), (start(200, (b"x y", b"z")), part(b""))],
    ids=["nothing", "an error", "a body first", "an unknown message", "a header with a space"],
)
async def test_an_app_that_fails_before_its_response_is_an_error_500(messages: Any) -> None:
    received = await answer_of(sending(*messages))

    assert received.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert b"connection: close\r\n" in received
    assert received.endswith(b"\r\n\r\nInternal Server Error")


@pytest.mark.parametrize(
    "messages",
    [
        (start(), part(b"begun", more=True)),
        (start(), part(b"begun", more=True), FAILED),
        (start(200, (b"content-length", b"9")), part(b"begun", more=True), part(b"")),
        (start(200, (b"content-length", b"5")), part(b"begun", more=True), part(b"and too long")),
        (start(), part(b"begun", more=True), start()),
    ],
    ids=["incomplete", "an error", "too short", "too long", "a second head"],
)
async def test_a_response_that_fails_in_the_middle_is_cut_off(messages: Any) -> None:
    received = await answer_of(sending(*messages))

    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"begun" in received
    assert not received.endswith(b"0\r\n\r\n")
    assert b"secret" not in received


async def test_a_response_without_a_length_is_chunked_for_a_client_that_knows_chunks() -> None:
    messages = (start(), part(b"one", more=True), part(b"", more=True), part(b"two"))

    newer = await answer_of(sending(*messages))
    older = await answer_of(sending(*messages), "1.0")

    assert b"transfer-encoding: chunked\r\n" in newer
    assert newer.endswith(b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
    assert b"transfer-encoding" not in older
    assert older.endswith(b"\r\n\r\nonetwo")


async def test_a_status_without_a_body_has_none() -> None:
    for status in (204, 304):
        received = await answer_of(sending(start(status, (b"content-length", b"4")), part(b"body")))

        assert received.startswith(f"HTTP/1.1 {status} ".encode())
        assert received.endswith(b"\r\n\r\n")


async def test_a_response_has_the_date_and_an_unknown_status_no_phrase() -> None:
    received = await answer_of(sending(start(599, (b"content-length", b"0")), part(b"")))

    assert received.startswith(b"HTTP/1.1 599 \r\ndate: ")
    assert b" GMT\r\n" in received


async def test_an_exchange_with_a_server_is_the_same_for_every_size_of_its_pieces() -> None:
    async with served_http(doing_server()) as url:
        whole = await exchange(url, headers=modern_headers("add"), body=call_body("add", {"a": 1, "b": 2}))
        async with connected(url) as stream:
            for byte in call_of(url):
                await stream.send(bytes([byte]))
            received = await one_response(stream)

    assert isinstance(whole, Answer)
    assert received.partition(b"\r\n\r\n")[2] == whole.body
