"""A connection of HTTP/1.1: bytes in, one task for each request, responses in the order of their requests.

The parser is httptools; the rest of a server's side of RFC 9112 is here. Everything happens in the event loop. A
connection is read in three states: in a head, with a bound on its time and size (slowloris); in a body, which the app
bounds; and between two requests, where it counts as idle. Pipelined requests are parsed at once and answered one after
the other: `_running` is the one that is answered, `newest` the one whose body is read. Reading pauses while too much
has arrived that the app did not receive, so memory for a connection is bounded. Knows nothing of MCP.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import deque
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import unquote

import httptools

from toolweave.serve._http.asgi import App, Receive, Scope, Send, respond
from toolweave.serve._http.exchange import HttpExchange
from toolweave.serve._http.half_close import HalfClose
from toolweave.serve._http.limits import HttpLimits
from toolweave.serve._http.open_connections import IdleConnections, OpenConnections
from toolweave.serve._http.shares import RETRY_SECONDS

_MAX_BODY_READ = 65536
"""Bytes of a body that the app did not receive yet; beyond them reading pauses."""
_MAX_QUEUED = 16
"""Pipelined requests that wait; with more of them reading pauses."""
_ABSOLUTE_TARGET = re.compile(rb"(?i)https?://([^/?#]*)")
_FRAMING = (b"content-length", b"transfer-encoding")
_TOO_SLOW = b"408 Request Timeout"
_TOO_LARGE = b"431 Request Header Fields Too Large"
_MALFORMED = b"400 Bad Request"


@dataclass(eq=False, slots=True)
class ServerState:
    """The part that all connections of a server have in common.

    Attributes:
        app: The app, which gets requests only.
        limits: The limits of a request's head and of idle connections.
        idle: The idle connections.
        opened: The open connections by address.
        connections: All open connections.
        tasks: The tasks of the requests that run.
        is_closing: Whether each response closes its connection, because the server is about to end.
    """

    app: App
    limits: HttpLimits
    idle: IdleConnections
    opened: OpenConnections
    connections: set[HttpConnection] = field(default_factory=set["HttpConnection"])
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    is_closing: bool = False


class HttpConnection(asyncio.Protocol):
    """One connection of a client.

    Args:
        state: The state of the server.
        loop: The event loop.

    Attributes:
        transport: Where bytes are written.
        is_encrypted: Whether it is TLS.
        is_read_paused: Whether enough has arrived that was not processed yet.
        is_write_paused: Whether the output buffer is full.
        is_excess: Whether it came beyond the maximum, and none could be closed for it.
        newest: The last request whose head is complete.
    """

    def __init__(self, state: ServerState, loop: asyncio.AbstractEventLoop) -> None:
        self.transport: asyncio.Transport
        self.is_encrypted = False
        self.is_read_paused = False
        self.is_write_paused = False
        self.is_excess = False
        self.newest: HttpExchange | None = None
        self._state = state
        self._loop = loop
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        # What follows a request with `Connection: close` is ignored instead of an error for the request itself.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._client: tuple[str, int] | None = None
        self._server: tuple[str, int] | None = None
        self._running: HttpExchange | None = None
        self._queued: deque[tuple[HttpExchange, App]] = deque()
        self._half_close: HalfClose | None = None
        self._is_refused = False  # the rest of what the client sends is ignored
        self._writable: asyncio.Event | None = None
        # the head that is being read
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects_continue = False
        self._is_upgrade = False  # its body is not read yet
        self._is_head_known = False
        self._in_head = False
        self._head_bytes = 0
        self._skip_chunk = False
        self._head_timer: asyncio.TimerHandle | None = None

    @property
    def host(self) -> str | None:
        """The address of the client; None if the system does not report it."""
        if self._client is None:
            return None
        return self._client[0]

    @property
    def has_queued(self) -> bool:
        """Whether requests wait for the response to one before them."""
        return bool(self._queued)

    @property
    def is_closing(self) -> bool:
        """Whether a response closes the connection, because the server is about to end."""
        return self._state.is_closing

    @property
    def still_sends(self) -> bool:
        """Whether a request has begun and is not complete yet, and none waits for its response."""
        newest = self.newest
        if newest is None or newest.response_complete:
            return self._in_head
        if self._queued or newest.response_started:
            return False
        return newest.more_body

    def give_way(self) -> None:
        """Close the connection for one of another address."""
        if self._state.idle.since.pop(self, None) is not None:
            self.transport.close()
        else:
            self._refuse(b"503 Service Unavailable\r\nretry-after: %d" % RETRY_SECONDS)

    def close_idle(self) -> None:
        """Close the connection: it was idle for too long."""
        if not self.transport.is_closing():
            self.transport.close()

    def close_when_answered(self) -> None:
        """Close the connection when no response is due any more."""
        newest = self.newest
        if newest is None or newest.response_complete:
            self.transport.close()
        else:
            newest.keep_alive = False

    # the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the header timeout; close a connection when there are too many."""
        self.transport = cast("asyncio.Transport", transport)  # that of uvloop is not one by its class
        self.is_encrypted = transport.get_extra_info("sslcontext") is not None
        self._client = _address(transport.get_extra_info("peername"))
        self._server = _address(transport.get_extra_info("sockname"))
        self._state.connections.add(self)
        # It may close this connection at once, if there are too many: so the transport is checked below.
        self._state.opened.add(self)
        if transport.is_closing():
            return
        self._state.idle.since[self] = math.inf  # its first head has another timeout
        self._in_head = True
        self._head_timer = self._loop.call_later(self._state.limits.header_seconds, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let every request know that its client is gone."""
        self._state.connections.discard(self)
        self._state.idle.since.pop(self, None)
        self._state.opened.remove(self)
        self._disarm()
        for exchange in (self._running, self.newest):
            if exchange is not None:
                exchange.disconnect()
        # A task that waits for room in the output buffer would otherwise wait for a connection that is gone.
        self.resume_writing()
        # Each of these refers to this connection, which would otherwise be left to the garbage collector.
        self._queued.clear()
        self._running = None
        self.newest = None
        self._half_close = None
        self._parser = None

    def eof_received(self) -> bool:
        """Keep the connection open for the responses to complete requests."""
        if self._half_close is None:
            self._half_close = HalfClose(self, self._loop)
        if not self._half_close.is_open_for_responses():
            return False
        self._disarm()
        return True

    def data_received(self, data: bytes) -> None:
        """Parse the bytes, and bound a head that is not complete."""
        if self._is_refused:
            return
        self._parse(data)
        if not self._in_head or self._is_refused:
            return
        if self._skip_chunk:
            self._skip_chunk = False  # a pipelined head may share its first chunk with the request before
        else:
            self._head_bytes += len(data)
        # By the bytes that arrived and not by the parsed headers: a single endless header is never parsed.
        if self._head_bytes > self._state.limits.header_bytes:
            self._refuse(_TOO_LARGE)
        elif self._head_timer is None:
            self._head_timer = self._loop.call_later(self._state.limits.header_seconds, self._too_slow)

    def pause_writing(self) -> None:
        """Let responses wait: the client reads too slowly."""
        self.is_write_paused = True

    def resume_writing(self) -> None:
        """Let responses continue."""
        self.is_write_paused = False
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    async def writable(self) -> None:
        """Wait until the output buffer has room, or the connection is lost."""
        if self.is_write_paused and not self.transport.is_closing():
            if self._writable is None:
                self._writable = asyncio.Event()
            await self._writable.wait()

    def resume_reading(self) -> None:
        """Read again, unless enough has arrived that was not processed yet."""
        if self.is_read_paused and not self._has_enough():
            self.is_read_paused = False
            self.transport.resume_reading()

    def _pause_reading(self) -> None:
        if not self.is_read_paused and self._has_enough():
            self.is_read_paused = True
            self.transport.pause_reading()

    def _has_enough(self) -> bool:
        if len(self._queued) >= _MAX_QUEUED:
            return True
        if self.newest is None:
            return False
        return len(self.newest.body) > _MAX_BODY_READ

    # the parser

    def _parse(self, data: bytes) -> None:
        rest: bytes | memoryview = data
        while rest and self._parser is not None:
            try:
                self._parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as exc:
                rest = memoryview(data)[len(data) - len(rest) + exc.args[0] :]
                self._ignore_upgrade()
            except httptools.HttpParserError:
                self._refuse(_MALFORMED)
                return

    def _ignore_upgrade(self) -> None:
        """Continue with the body of a request that offers another protocol: it is answered as HTTP.

        The parser takes every byte behind such a head for the other protocol. So a new parser gets the length of the
        body in another head, and then the bytes.
        """
        framing = [b"%b: %b\r\n" % header for header in self._headers if header[0] in _FRAMING]
        self._parser = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._is_upgrade = False
        self._is_head_known = True
        self._parser.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(framing) + b"\r\n")

    def on_message_begin(self) -> None:
        """A head begins."""
        if self._is_head_known:
            return
        self._state.idle.since.pop(self, None)
        self._in_head = True
        self._head_bytes = 0
        self._skip_chunk = True
        self._url = b""
        self._headers = []
        self._expects_continue = False

    def on_url(self, url: bytes) -> None:
        """A part of the target arrived."""
        if not self._is_head_known:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header arrived, or a trailer, which is ignored."""
        if not self._in_head:
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """A head is complete: start to answer it, or queue it behind the request before."""
        if self._is_head_known:
            self._is_head_known = False
            return
        self._in_head = False
        self._disarm()
        parser = self._parser
        if parser is None or self._is_refused:
            return
        self._is_upgrade = parser.should_upgrade()
        version = parser.get_http_version()
        # Connections of HTTP/1.0 are closed in any case: few clients keep them, and proxies disagree about how.
        keep_alive = version != "1.0" and parser.should_keep_alive() and not self._state.is_closing
        scope = self._scope(parser.get_method(), version)
        exchange = HttpExchange(scope, self, keep_alive=keep_alive, expects_continue=self._expects_continue)
        app = self._state.app
        # Asked again now, with a whole head: connections may have been closed since, and otherwise the client gets a
        # status and not a reset.
        if self.is_excess and self._state.opened.refuses(self):
            app = _busy
        before = self.newest
        self.newest = exchange
        if before is None or before.response_complete:
            self._start(exchange, app)
        else:
            self._queued.append((exchange, app))
            self._pause_reading()

    def _scope(self, method: bytes, version: str) -> Scope:
        url = httptools.parse_url(self._url)
        raw_path = url.path or b"/"
        path = raw_path.decode("ascii")
        if "%" in path:
            path = unquote(path)
        headers = self._headers
        found = _ABSOLUTE_TARGET.match(self._url)
        if found is not None:  # its host counts, whatever the header says (RFC 9112, 3.2.2)
            headers = [header for header in headers if header[0] != b"host"]
            headers.append((b"host", found[1]))
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "server": self._server,
            "client": self._client,
            "scheme": "https" if self.is_encrypted else "http",
            "method": method.decode("ascii"),
            "root_path": "",
            "path": path,
            "raw_path": raw_path,
            "query_string": url.query or b"",
            "headers": headers,
            "state": {},
        }

    def on_body(self, body: bytes) -> None:
        """A part of a body arrived."""
        newest = self.newest
        if newest is None or newest.response_complete:
            return  # the rest of a request that was refused is read and dropped
        newest.body += body
        if len(newest.body) > _MAX_BODY_READ:
            self._pause_reading()
        newest.changed()

    def on_message_complete(self) -> None:
        """A request is complete."""
        newest = self.newest
        if newest is not None and not newest.response_complete and not self._is_upgrade:
            newest.more_body = False
            newest.changed()

    # requests

    def _start(self, exchange: HttpExchange, app: App) -> None:
        self._running = exchange
        task = self._loop.create_task(exchange.run(app))
        self._state.tasks.add(task)
        # Held until its end: the event loop has only a weak reference to a task.
        task.add_done_callback(self._state.tasks.discard)

    def exchange_ended(self) -> None:
        """Answer the next request, or wait for one."""
        if self.transport.is_closing():
            return
        if self._queued:
            self._start(*self._queued.popleft())
        elif not self._in_head:
            self._state.idle.add(self, self._loop)
        if self.is_read_paused:
            self.resume_reading()

    def _disarm(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._refuse(_TOO_SLOW)

    def _refuse(self, status: bytes) -> None:
        """Refuse an incomplete request, and close the connection once the complete ones are answered."""
        if self.transport.is_closing() or self._is_refused:
            return
        self._is_refused = True
        self._disarm()
        newest = self._newest_complete()
        if newest is not None and newest.is_answered_later:
            newest.keep_alive = False  # its response closes the connection
            return
        # An error in the middle of another response would be read as a part of it.
        is_in_response = newest is not None and newest.response_started and not newest.response_complete
        if not is_in_response:
            self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()

    def _newest_complete(self) -> HttpExchange | None:
        """Forget a queued request whose body is incomplete, and return the last one before it."""
        # A queued request is not running yet, so it can be forgotten without an effect.
        if self.newest is not None and self.newest.more_body and self._queued:
            self._queued.pop()
            if self._queued:
                self.newest = self._queued[-1][0]
            else:
                self.newest = self._running
        return self.newest


async def _busy(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a request because there are too many connections."""
    headers = [(b"retry-after", b"%d" % RETRY_SECONDS), (b"connection", b"close")]
    await respond(send, 503, "Too many connections are open; try again later", headers)


def _address(found: object) -> tuple[str, int] | None:
    """Return an address of the system as ASGI has it; None for one that has no host, as that of a Unix socket."""
    if not isinstance(found, tuple):
        return None
    parts = cast("tuple[object, ...]", found)
    if len(parts) >= 2 and isinstance(parts[0], str) and isinstance(parts[1], int):
        return (parts[0], parts[1])
    return None
