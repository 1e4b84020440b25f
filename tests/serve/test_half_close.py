"""A client that closes its sending side after its request, and one that leaves, which looks the same at first."""

from __future__ import annotations

import json

import anyio
import pytest
from anyio.abc import SocketStream

from tests.serve.exchanges import (
    call_body,
    connected,
    handshake,
    head,
    modern_headers,
)
from tests.serve.offered import Doings, doing_server
from tests.serve.serving import served_http
from toolweave import tool
from toolweave.serve import McpServer, create_mcp_server


def numbers() -> McpServer:
    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    @tool
    async def fill(size: int) -> str:
        return "z" * size

    return create_mcp_server(name="s", version="1", tools=[add, fill])


def request(url: str, tool: str = "add", session: dict[str, str] | None = None, **arguments: int) -> bytes:
    """Return the text of a call of the newest revision, or of an open session."""
    body = call_body(tool, arguments) if session is None else legacy_body(tool, arguments)
    headers = modern_headers(tool) if session is None else session
    return head(url, headers={**headers, "Connection": "-", "Content-Length": str(len(body))}) + body


def legacy_body(tool: str, arguments: dict[str, int]) -> bytes:
    params = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


async def received_after(stream: SocketStream, sent: bytes) -> bytes:
    """Send the last bytes, close the sending side, and return everything that arrives until the server closes."""
    if sent:
        await stream.send(sent)
    await stream.send_eof()
    received = b""
    with anyio.fail_after(30):
        async for piece in stream:
            received += piece
    return received


@pytest.mark.parametrize("size", [10, 5_000_000])
async def test_a_client_that_closes_its_sending_side_after_a_request_gets_the_whole_response(size: int) -> None:
    async with served_http(numbers()) as url, connected(url) as stream:
        response = await received_after(stream, request(url, "fill", size=size))

    assert response.startswith(b"HTTP/1.1 200 OK\r\n")
    assert response.count(b"z") == 2 * size, "the text is in the content and in the structured content"


async def test_every_pipelined_request_is_answered_after_the_client_closed_its_sending_side() -> None:
    async with served_http(numbers()) as url, connected(url) as stream:
        response = await received_after(stream, b"".join(request(url, a=each, b=100) for each in range(5)))

    assert [b'"%d"' % (100 + each) in response for each in range(5)] == [True] * 5
    assert response.count(b"HTTP/1.1 200 OK") == 5


async def test_a_request_before_an_incomplete_one_is_answered_and_the_connection_ends() -> None:
    async with served_http(numbers()) as url:
        for cut in (30, -3):  # in the head, and in the body
            async with connected(url) as stream:
                response = await received_after(stream, request(url, a=1, b=2) + request(url, a=3, b=4)[:cut])
            assert response.count(b"HTTP/1.1 200 OK") == 1
            assert b'"3"' in response


async def test_a_session_answers_a_client_that_closed_its_sending_side() -> None:
    async with served_http(numbers()) as url:
        _, session = await handshake(url)
        async with connected(url) as stream:
            response = await received_after(stream, request(url, session=session, a=1, b=2))

    assert response.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b'"3"' in response


@pytest.mark.slow
async def test_a_slow_call_of_such_a_client_is_answered_after_interim_responses() -> None:
    waiting = anyio.Event()
    go = anyio.Event()

    @tool
    async def wait() -> str:
        waiting.set()
        await go.wait()
        return "done"

    async with served_http(create_mcp_server(name="s", version="1", tools=[wait])) as url, connected(url) as stream:
        await stream.send(request(url, "wait"))
        await stream.send_eof()
        with anyio.fail_after(30):
            await waiting.wait()
            interim = await stream.receive()
            go.set()
            rest = b"".join([piece async for piece in stream])

    assert interim.startswith(b"HTTP/1.1 102 Processing\r\n\r\n")
    assert b"HTTP/1.1 200 OK" in rest
    assert b'"done"' in rest


@pytest.mark.slow
async def test_a_client_that_leaves_cancels_its_call_although_its_end_looks_like_a_closed_sending_side() -> None:
    doings = Doings()
    async with served_http(doing_server(doings)) as url:
        async with connected(url) as stream:
            await stream.send(request(url, "wait"))
            with anyio.fail_after(30):
                await doings.started.wait()
        with anyio.fail_after(30):
            await doings.cancelled.wait()


async def test_a_stream_ends_with_the_sending_side_of_its_client() -> None:
    async with served_http(numbers()) as url:
        _, session = await handshake(url)
        async with connected(url) as stream:
            await stream.send(head(url, "GET", {**session, "Accept": "text/event-stream"}))
            assert (await stream.receive()).startswith(b"HTTP/1.1 200 OK\r\n")
            await received_after(stream, b"")
