"""One request over HTTP/1.1 and its response: the `receive` and `send` of ASGI on one side, bytes on the other.

The parser of the connection adds to the body; the task of the exchange receives it and sends the response. Both run in
the event loop and hand over between two waits, so nothing is locked. An exchange ends in one of three ways: its
response is complete, its client disconnects, or the app fails. After a disconnect `send` does nothing, and `receive`
reports it; the app decides whether that cancels anything. Knows nothing of MCP.
"""

from __future__ import annotations

import asyncio
import http
import logging
import re
import time
from email.utils import formatdate
from enum import Enum, auto
from functools import lru_cache
from typing import Protocol

from toolweave.serve._http.asgi import TOGETHER, App, Message, Scope, respond

_log = logging.getLogger("toolweave.serve._http.app")
_LARGE = 65536  # bytes of a body that is written by itself: to copy it would cost more than to write twice
_MAX_LINES = 4096
_MAX_LINE = 256
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NO_NAME = re.compile(rb'[\x00-\x1f\x7f()<>@,;:\[\]={} \t\\"]')
_NO_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_DECIDING = frozenset({b"connection", b"content-length", b"transfer-encoding"})
_BODILESS = frozenset({204, 304})


class Framing(Enum):
    """The ways in which a client finds the end of a response."""

    NO_BODY = auto()
    LENGTH = auto()
    CHUNKED = auto()
    CLOSE = auto()


class Carrier(Protocol):
    """The connection that an exchange belongs to."""

    transport: asyncio.Transport
    is_read_paused: bool
    is_write_paused: bool

    @property
    def is_closing(self) -> bool:
        """Whether a response closes the connection, because the server is about to end."""
        ...

    async def writable(self) -> None:
        """Wait until the output buffer has room, or the connection is lost."""
        ...

    def resume_reading(self) -> None:
        """Read again, unless enough has arrived that was not processed yet."""
        ...

    def exchange_ended(self) -> None:
        """Continue after a complete response."""
        ...


class HttpExchange:
    """A request and its response.

    Args:
        scope: ASGI's.
        carrier: The connection.
        keep_alive: Whether the connection may be used for another request.
        expects_continue: Whether the client waits for `100 Continue` before it sends the body.

    Attributes:
        scope: ASGI's.
        keep_alive: Whether the connection stays open after the response.
        body: The part of the body that arrived and was not received by the app yet.
        more_body: Whether the body is incomplete.
        disconnected: Whether the client disconnected before the response was complete.
        response_started: Whether the head of the response was written.
        response_complete: Whether the response was written.
        framing: How the client finds the end of the response, once that has started.
    """

    __slots__ = (
        "_carrier",
        "_event",
        "_expects_continue",
        "_head",
        "_is_ready",
        "_remaining",
        "body",
        "disconnected",
        "framing",
        "keep_alive",
        "more_body",
        "response_complete",
        "response_started",
        "scope",
    )

    def __init__(self, scope: Scope, carrier: Carrier, *, keep_alive: bool, expects_continue: bool) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.body = b""
        self.more_body = True
        self.disconnected = False
        self.response_started = False
        self.response_complete = False
        self.framing = Framing.CLOSE
        self._carrier = carrier
        self._expects_continue = expects_continue
        self._head: bytes | None = None  # waits for the body, to be written with it
        self._remaining = 0  # bytes of a body whose length was declared
        # Most bodies are there before the app asks, so the event is only made for one that waits.
        self._is_ready = False
        self._event: asyncio.Event | None = None

    @property
    def is_answered_later(self) -> bool:
        """Whether the request is complete and its response is not."""
        return not (self.more_body or self.response_complete or self.disconnected)

    # the connection's side

    def changed(self) -> None:
        """Let `receive` return: body arrived, or the exchange is over."""
        self._is_ready = True
        if self._event is not None:
            self._event.set()

    def disconnect(self) -> None:
        """Note that the client is gone."""
        if not self.response_complete:
            self.disconnected = True
        self.changed()

    async def run(self, app: App) -> None:
        """Run the app for this request, and answer for one that fails."""
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            self._carrier.transport.close()
            raise
        except BaseException:  # boundary: an app that fails, or exits, costs its own request
            _log.exception("the app failed to answer a request")
        if self.response_complete or self.disconnected:
            return
        if self.response_started:
            _log.error("the app did not complete its response")
            self._carrier.transport.close()
        else:
            self._head = None
            await respond(self.send, 500, "Internal Server Error", [(b"connection", b"close")])

    # ASGI

    async def receive(self) -> Message:
        """Return the next event of the request; see ASGI."""
        if self._expects_continue and not self._carrier.transport.is_closing():
            self._expects_continue = False
            # Sent when the app asks for the body, and not at once: a request that is refused by its headers never has
            # its body sent.
            self._carrier.transport.write(_CONTINUE)
        if not (self._is_ready or self.disconnected or self.response_complete):
            self._carrier.resume_reading()
            if self._event is None:
                self._event = asyncio.Event()
            await self._event.wait()
        self._is_ready = False
        if self._event is not None:
            self._event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body = self.body
        self.body = b""
        if self._carrier.is_read_paused:
            self._carrier.resume_reading()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: Message) -> None:
        """Write a part of the response; see ASGI.

        Raises:
            RuntimeError: The message is not the one that is due, or its head or length is wrong.
        """
        # Awaited before each part, so a client that does not read holds one part in memory, not the whole response.
        if self._carrier.is_write_paused and not self.disconnected:
            await self._carrier.writable()
        if self.disconnected:
            return
        kind = message["type"]
        if self._head is None and not self.response_started:
            if kind != "http.response.start":
                raise RuntimeError(f"expected the ASGI message 'http.response.start', not {kind!r}")
            self._head = self._rendered(message)
            if TOGETHER not in message:
                self._write((self._head,))
            return
        if kind != "http.response.body" or self.response_complete:
            raise RuntimeError(f"unexpected ASGI message {kind!r}")
        is_last = not message.get("more_body", False)
        self._write(self._framed(message.get("body", b""), is_last=is_last))
        if is_last:
            self.response_complete = True
            self.body = b""
            self.changed()
            if not self.keep_alive:
                self._carrier.transport.close()
            self._carrier.exchange_ended()

    # bytes

    def _write(self, pieces: tuple[bytes, ...]) -> None:
        """Write a part of the response, and the head that waits for it."""
        head = self._head
        if head is not None:
            self._head = None
            self.response_started = True
            self._expects_continue = False
            if pieces[0] is not head:
                pieces = (head, *pieces)
        if len(pieces[-1]) > _LARGE:
            for piece in pieces:
                self._carrier.transport.write(piece)
        else:
            self._carrier.transport.write(b"".join(pieces))

    def _framed(self, body: bytes, *, is_last: bool) -> tuple[bytes, ...]:
        """Return the bytes of a part of the body."""
        framing = self.framing
        if framing is Framing.LENGTH:
            left = self._remaining - len(body)
            # Checked before anything is written: more bytes than declared would be read as the beginning of the next
            # response.
            if left < 0:
                raise RuntimeError("the response is longer than its Content-Length")
            if left and is_last:
                raise RuntimeError("the response is shorter than its Content-Length")
            self._remaining = left
            return (body,)
        if framing is Framing.NO_BODY:
            return (b"",)
        if framing is Framing.CLOSE:
            return (body,)
        end = b"0\r\n\r\n" if is_last else b""
        if body:
            return (b"%x\r\n" % len(body), body, b"\r\n", end)
        return (end,)

    def _rendered(self, message: Message) -> bytes:
        """Return the bytes of a head, whose headers decide the framing and whether the connection stays open."""
        if self._carrier.is_closing:
            self.keep_alive = False
        lines = [_status_line(message["status"]), _date_line(int(time.time()))]
        length: int | None = None
        is_chunked = False
        for name, value in message.get("headers", ()):
            if name == b"content-length":  # differs from response to response, and every response has it
                length = int(value)
                lines.append(b"content-length: %d\r\n" % length)
                continue
            line = _LINES.get((name, value))
            if line is None:
                line = _line(name, value)
                key = name.lower()
                if key == b"content-length":
                    length = int(value)
                elif key == b"transfer-encoding":
                    is_chunked = value.lower() == b"chunked"
                elif key == b"connection" and _has_close(value):
                    self.keep_alive = False
                    continue  # written once, at the end
            lines.append(line)
        framing = self._framing(message["status"], length, is_chunked=is_chunked)
        self.framing = framing
        if framing is Framing.CHUNKED and not is_chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)

    def _framing(self, status: int, length: int | None, *, is_chunked: bool) -> Framing:
        """Return how the body of a response is framed, by its headers."""
        # First, whatever the headers say: such a response ends with its head (RFC 9112, 6.3).
        if status in _BODILESS or self.scope["method"] == "HEAD":
            return Framing.NO_BODY
        if is_chunked:
            return Framing.CHUNKED
        if length is not None:
            self._remaining = length
            return Framing.LENGTH
        # HTTP/1.0 has no chunks (RFC 9112, 6.1), so the end of the connection is the end of the body.
        if self.scope["http_version"] == "1.0":
            self.keep_alive = False
            return Framing.CLOSE
        return Framing.CHUNKED


_LINES: dict[tuple[bytes, bytes], bytes] = {}
"""The lines of headers that were checked: most responses have the same. Those that decide the framing are not kept."""


def _line(name: bytes, value: bytes) -> bytes:
    """Return the line of a header, and keep it unless it is long.

    Raises:
        RuntimeError: The name or the value has a character that would end it.
    """
    if _NO_NAME.search(name) is not None:
        raise RuntimeError(f"the name of a response header is not valid: {name!r}")
    if _NO_VALUE.search(value) is not None:
        raise RuntimeError(f"the value of the response header {name!r} is not valid")
    key = name.lower()
    line = b"%b: %b\r\n" % (key, value)
    if key not in _DECIDING and len(line) <= _MAX_LINE:
        # Values may come from clients, so they must not decide how much memory this takes.
        if len(_LINES) >= _MAX_LINES:
            _LINES.clear()
        _LINES[(name, value)] = line
    return line


def _has_close(value: bytes) -> bool:
    return b"close" in [option.strip() for option in value.lower().split(b",")]


_STATUS_LINES: dict[int, bytes] = {}


def _status_line(status: int) -> bytes:
    line = _STATUS_LINES.get(status)
    if line is None:
        try:
            phrase = http.HTTPStatus(status).phrase
        except ValueError:
            phrase = ""
        line = _STATUS_LINES[status] = f"HTTP/1.1 {status:d} {phrase}\r\n".encode()
    return line


@lru_cache(maxsize=1)
def _date_line(second: int) -> bytes:
    """Return the header `Date` of a second since the epoch."""
    return f"date: {formatdate(second, usegmt=True)}\r\n".encode()
