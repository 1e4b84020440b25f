"""Responses on one connection: each is read as if it were the first one that this client gets."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave.http import Socket


class Peer:
    """A transport to nobody, which records whether it was closed."""

    def __init__(self) -> None:
        self.closed = False

    def write(self, data: bytes) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True


def chunked(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"


LENGTH, CHUNKED, TOO_LONG, TOO_SHORT = "length", "chunked", "too long", "too short"
HEADERS = st.lists(
    st.sampled_from(
        [
            b"Content-Type: application/json",
            b"content-type: Application/JSON; charset=utf-8",
            b"content-type: text/event-stream",
            b"content-encoding: gzip",
            b"set-cookie: a=1; Path=/",
            b"connection: close",
            b"keep-alive: timeout=5",
            b"x-empty:",
            b"X-Twice: 1",
            b"x-twice: 2",
        ]
    ),
    max_size=4,
)


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    """Draw the bytes of one response, nearly always a valid one."""
    status = draw(st.sampled_from([b"200 OK"] * 4 + [b"201 Created", b"404 Not Found", b"204 No Content"]))
    framing = draw(st.sampled_from([LENGTH] * 4 + [CHUNKED, TOO_LONG, TOO_SHORT]))
    body = draw(st.sampled_from([b"", b"ok", b'{"jsonrpc":"2.0","id":1,"result":{}}', b"\r\n\r\n"]))
    lines = [b"HTTP/1.1 " + status, *draw(HEADERS)]
    if framing == CHUNKED:
        lines.append(b"transfer-encoding: chunked")
        return b"\r\n".join(lines) + b"\r\n\r\n" + chunked(body)
    lines.append(b"Content-Length: %d" % len(body))
    sent = {TOO_LONG: body + b"x", TOO_SHORT: body[:-1]}.get(framing, body)
    return b"\r\n".join(lines) + b"\r\n\r\n" + sent


def exchange(socket: Socket, answer: bytes, cuts: Sequence[int]) -> tuple[Any, ...]:
    """Play one response on a connection, in pieces, and return what is seen of it."""
    socket.begin(b"request")
    places = sorted({0, len(answer), *(cut % (len(answer) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(places):
        if cast("Peer", socket.transport).closed:
            break
        socket.get_buffer(-1)[: end - start] = answer[start:end]
        socket.buffer_updated(end - start)
    head = socket.head
    seen = (head.status, head.reason, head.headers, head.cookies) if socket.has_head else ()
    return seen, socket.complete, socket.is_free(), socket.error is None, socket.drain()


def connection() -> Socket:
    socket = Socket()
    socket.transport = cast("Any", Peer())
    return socket


@pytest.mark.slow
@given(st.lists(responses(), min_size=1, max_size=2), st.integers(2, 6), st.lists(st.integers(0, 500), max_size=4))
def test_a_response_is_read_as_on_a_new_connection_whatever_came_before(
    answers: list[bytes], times: int, cuts: list[int]
) -> None:
    kept = connection()
    for answer in itertools.islice(itertools.cycle(answers), times):
        seen = exchange(kept, answer, cuts)
        assert seen == exchange(connection(), answer, cuts)
        if not kept.is_free():
            break  # the pool closes such a connection
