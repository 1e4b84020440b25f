"""Serving an HTTP app with uvicorn: with the limits it lacks, and a shutdown that lets running calls finish.

The one module that imports uvicorn; import it only to serve. Knows nothing of MCP.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import math
import re
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import Any, cast

import anyio
import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from toolweave.serve._http.app import HttpApp
from toolweave.serve._http.asgi import TOGETHER, Message, Receive, Scope, Send, respond
from toolweave.serve._http.callers import UNKNOWN
from toolweave.serve._http.half_close import HalfClose
from toolweave.serve._http.limits import HttpLimits
from toolweave.serve._http.listener import empty_queues
from toolweave.serve._http.shares import RETRY_SECONDS, HttpShares, Shares
from toolweave.serve._signals import stop_signals

_log = logging.getLogger("toolweave.serve._http.app")
_GRACE = 1.0
_SPARE = 100  # connections beyond the maximum whose requests are read, to be refused with a status
_PROXIES = "proxies"
_LARGE = 65536  # bytes of a body that is written by itself: to copy it would cost more than to write twice
_MOST_LINES = 4096
_LONGEST_LINE = 256
_ABSOLUTE_TARGET = re.compile(rb"(?i)https?://([^/?#]*)")
_DECIDING = frozenset({b"connection", b"transfer-encoding"})


async def serve_http(
    app: HttpApp,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    tls: tuple[str, str] | None = None,
    on_started: Callable[[str], object] | None = None,
    reuse_port: bool = False,
) -> None:
    """Serve an app until SIGINT or SIGTERM, or until cancelled.

    On a signal no new request is accepted, idle streams are ended, and running calls have
    `HttpLimits.shutdown_seconds` to finish; a second signal ends them at once. After SIGTERM requests are still
    accepted for `HttpLimits.drain_seconds`, so that none is lost that a balancer or a kept-alive connection had under
    way: every answer closes its connection, and readiness says no. Then no connection is accepted, and requests on
    the others are answered for a second more. SIGHUP is `app.on_hangup`, where that is set.

    Args:
        app: Made by `McpServer.asgi_app`.
        host: The address or name to bind.
        port: The port, 0 for a free one.
        tls: The files of certificate and key; None for plain HTTP.
        on_started: Called with the address, such as `http://127.0.0.1:8000`, once requests are accepted.
        reuse_port: Whether other processes of this user serve the same port (`SO_REUSEPORT`); the system spreads the
            connections.

    Raises:
        OSError: The port cannot be bound.
    """
    bound = bind(host, port, reuse_port=reuse_port)
    stopping = _ShutdownSignals()
    failure: OSError | None = None  # raised outside of the task groups, which would put it into a group of errors
    try:
        url = f"{'http' if tls is None else 'https'}://{_authority(host, bound)}"
        # the socket listens only after the signal handlers, the lifespan and all imports are ready
        with stop_signals(stopping.stop, other=stopping.other(app)), stopping.starting:
            async with app.lifespan():
                server = _UvicornServer(_config(app, tls), app, bound.getsockname()[0])
                stopping.server = server
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_tell, server, on_started, url)
                    try:
                        await server.serve(sockets=[bound])
                    except OSError as exc:
                        failure = exc
                    finally:
                        tasks.cancel_scope.cancel()
                        with anyio.CancelScope(shield=True):
                            await server.finish(bound)
        if failure is not None:
            raise failure
    finally:
        bound.close()


class _ShutdownSignals:
    """Signal handling: the first signal cancels the start or begins the shutdown; the second cancels running calls.

    Attributes:
        starting: The cancel scope around everything, so that a slow start can be cancelled.
        server: The server, once it exists.
    """

    def __init__(self) -> None:
        self.starting = anyio.CancelScope()
        self.server: _UvicornServer | None = None

    def other(self, app: HttpApp) -> dict[int, Callable[[], object]]:
        """Return the functions of the signals that do more or less than `stop`, by number."""
        own: dict[int, Callable[[], object]] = {signal.SIGINT: self._interrupt}
        if app.on_hangup is not None and hasattr(signal, "SIGHUP"):
            own[signal.SIGHUP] = app.on_hangup
        return own

    def _interrupt(self) -> None:
        """Stop without the time to drain: a user who presses Ctrl-C is no load balancer."""
        if self.server is not None:
            self.server.hurried.set()
        self.stop()

    def stop(self) -> None:
        """Take a signal."""
        server = self.server
        if server is None:
            self.starting.cancel()
            return
        server.force_exit = server.should_exit
        server.should_exit = True
        if server.force_exit:
            server.hurried.set()
            server.app.abort()


def _config(app: HttpApp, tls: tuple[str, str] | None) -> uvicorn.Config:
    limits = app.limits
    idle = _IdleConnections(limits.keep_alive_seconds)
    opened = _OpenConnections(app.shares, idle, limits.connections)
    return uvicorn.Config(
        cast("Any", partial(_served, app)),
        interface="asgi3",
        http=partial(_HttpProtocol, limits=limits, idle=idle, opened=opened),  # pyright: ignore[reportArgumentType] - called like the class
        ws="none",
        lifespan="off",  # entered around the server, so that its errors reach the caller
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=limits.keep_alive_seconds,  # pyright: ignore[reportArgumentType] - any number of seconds
        timeout_graceful_shutdown=round(limits.shutdown_seconds + 2 * _GRACE),
        ssl_certfile=None if tls is None else tls[0],
        ssl_keyfile=None if tls is None else tls[1],
    )


async def _busy(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a request because there are too many connections."""
    headers = [(b"retry-after", b"%d" % RETRY_SECONDS), (b"connection", b"close")]
    await respond(send, 503, "Too many connections are open; try again later", headers)


def bind(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Return a bound socket that does not listen yet: until it does, connections are refused.

    Raises:
        OSError: The port cannot be bound.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio sets it only on its own sockets
        bound.bind(address[:2])
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound


def _authority(host: str, bound: socket.socket) -> str:
    return f"{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{bound.getsockname()[1]}"


async def _tell(server: _UvicornServer, on_started: Callable[[str], object] | None, url: str) -> None:
    await server.ready.wait()
    _log.info("serving MCP at %s", url)
    if not server.app.authorizes and not ipaddress.ip_address(server.bound_address).is_loopback:
        _log.warning("%s is open to everyone who can reach it; `auth` would ask who calls", url)
    if on_started is not None:
        on_started(url)


class _UvicornServer(uvicorn.Server):
    """uvicorn's server with our signal handling, and a shutdown that involves our app."""

    def __init__(self, config: uvicorn.Config, app: HttpApp, address: str) -> None:
        super().__init__(config)
        self.app = app
        self.ready = anyio.Event()
        self.hurried = anyio.Event()
        self._over = False
        self.bound_address = address

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals alone: `serve_http` receives them, and returns instead of raising them again."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Report that requests are accepted."""
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running calls finish, then cancel them."""
        self._over = True
        await self._turn_away(sockets or [])
        await self.app.drain()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._abort_in_time)
            await super().shutdown(sockets)
            tasks.cancel_scope.cancel()

    async def finish(self, bound: socket.socket) -> None:
        """End a cancelled server; running calls are cancelled, too."""
        if self.started and not self._over:
            self.app.abort()
            self.hurried.set()
            await self.shutdown([bound])
        with anyio.move_on_after(_GRACE):
            while self.server_state.tasks:
                await anyio.sleep(0.01)

    async def _turn_away(self, sockets: Sequence[socket.socket]) -> None:
        """Continue to serve for a while, with answers that close their connections.

        Data that is sent on an idle connection while it is being closed is lost, and a listener that is closed resets
        the connections in its queue. So both stay open until clients and balancers had the time to see that this server
        ends.
        """
        self.app.draining = True
        seconds = self.app.limits.drain_seconds
        if seconds == 0 or self.hurried.is_set():
            return
        self.server_state.default_headers = [*self.server_state.default_headers, (b"connection", b"close")]
        for connection in self.server_state.connections:
            cycle = cast("Any", connection).cycle
            if cycle is not None and not cycle.response_started:
                cycle.keep_alive = False
        with anyio.move_on_after(seconds):
            await self.hurried.wait()
        await empty_queues(sockets, hurried=self.hurried)
        for one in (*self.servers, *sockets):
            one.close()
        with anyio.move_on_after(_GRACE):  # a connection that is closed before its request was read is reset
            await self.hurried.wait()

    async def _abort_in_time(self) -> None:
        await anyio.sleep(self.app.limits.shutdown_seconds)
        self.app.abort()


def _served(app: HttpApp, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
    """Serve a request: an ASGI app for uvicorn, that is all HTTP."""
    cycle = getattr(send, "__self__", None)
    if isinstance(cycle, RequestResponseCycle):
        joined = _JoiningSend(cycle)
    else:
        joined = send
    return app.http(scope, receive, joined)


class _JoiningSend(msgspec.Struct, eq=False):
    """uvicorn's `send` for one request, but that a head and a body which come `TOGETHER` are one write.

    Attributes:
        cycle: uvicorn's state of the request.
        head: The message of a head that waits for its body.
    """

    cycle: RequestResponseCycle
    head: Message | None = None

    async def __call__(self, message: Message) -> None:
        head = self.head
        cycle = self.cycle
        if head is None:
            if TOGETHER in message:
                self.head = message
            else:
                await cycle.send(cast("Any", message))
            return
        self.head = None
        if cycle.disconnected or cycle.flow.write_paused:
            text = None
        else:
            text = _joined(cycle, head, message)
        if text is None:
            await cycle.send(cast("Any", head))
            await cycle.send(cast("Any", message))
            return
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.transport.write(text)
        cycle.message_event.set()
        cycle.on_response()


def _joined(cycle: RequestResponseCycle, head: Message, message: Message) -> bytes | None:
    """Return the text of a response; None for one that is not plain, which uvicorn has to see, or to refuse."""
    body = message.get("body", b"")
    if message["type"] != "http.response.body" or message.get("more_body") or len(body) > _LARGE:
        return None
    if not cycle.keep_alive or cycle.response_started or cycle.scope["method"] == "HEAD":
        return None
    headers: list[Any] = [*cycle.default_headers, *head["headers"]]
    if (b"content-length", b"%d" % len(body)) not in headers:
        return None
    try:
        lines: list[Any] = list(map(_LINES.get, headers))
    except TypeError:  # pairs that are lists
        return None
    if None in lines:
        lines = list(map(_line, headers))
        if b"" in lines:
            return None
    return b"".join((STATUS_LINE[head["status"]], *lines, b"\r\n", body))


_LINES: dict[tuple[bytes, bytes], bytes] = {}
"""The lines of headers that were checked."""


def _line(header: tuple[bytes, bytes]) -> bytes:
    """Return the line of a header, b"" for one that uvicorn has to see, or to refuse."""
    name, value = header
    if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value) or name.lower() in _DECIDING:
        return b""
    line = b"%b: %b\r\n" % (name.lower(), value)
    if len(line) <= _LONGEST_LINE:
        if len(_LINES) >= _MOST_LINES:
            _LINES.clear()
        _LINES[header] = line
    return line


class _IdleConnections:
    """The idle connections of a server, longest idle first, and one timer that closes them in time.

    Args:
        seconds: How long each may be idle.

    Attributes:
        since: When each became idle, on the event loop's clock; infinite for one without a request.
    """

    def __init__(self, seconds: float) -> None:
        self.since: dict[_HttpProtocol, float] = {}
        self._seconds = seconds
        self._is_timed = False

    def add(self, connection: _HttpProtocol, loop: asyncio.AbstractEventLoop) -> None:
        """Count a connection as idle from now on."""
        self.since[connection] = loop.time()
        if not self._is_timed:
            self._is_timed = True
            loop.call_later(self._seconds, self._close_late, loop)

    def _close_late(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        first = math.inf
        for connection, since in list(self.since.items()):
            if now - since >= self._seconds:
                connection.timeout_keep_alive_handler()
            else:
                first = min(first, since)
        self._is_timed = first != math.inf
        if self._is_timed:  # slightly later than the first one needs, for those that follow it
            loop.call_at(first + self._seconds * 1.02, self._close_late, loop)


class _OpenConnections:
    """The open connections by address, so that no address takes all of them.

    Those of trusted proxies count for no address: each carries the requests of many callers.

    Args:
        shares: The shares of the app.
        idle: The idle connections.
        most: Maximum number of connections; None for no bound.
    """

    def __init__(self, shares: HttpShares, idle: _IdleConnections, most: int | None) -> None:
        self._callers = shares.callers
        self._figures = shares.figures["connections"]
        self._shares = Shares(self._figures)
        self._idle = idle
        self._most = most
        self._by_address: dict[str, dict[_HttpProtocol, None]] = {}
        self._address: dict[_HttpProtocol, str] = {}

    def add(self, connection: _HttpProtocol) -> None:
        """Count a new connection; beyond the maximum, close another one if any may be closed."""
        if connection.client is None:
            host = UNKNOWN
        else:
            host = connection.client[0]
        if self._callers.is_proxy(host):
            address = _PROXIES
        else:
            address = self._callers.counted(host)
        self._address[connection] = address
        self._by_address.setdefault(address, {})[connection] = None
        self._shares.add(address)
        if self._most is None or self._figures.held <= self._most:
            return
        found = self._to_close(address)
        if found is not None:
            self._figures.evicted += 1
        elif self._figures.held <= self._most + _SPARE:
            connection.is_excess = True
            return
        else:
            found = connection
            self._figures.refused += 1
        self.remove(found)
        found.give_way()

    def remove(self, connection: _HttpProtocol) -> None:
        """Forget a connection that is closed, or is about to be; does nothing the second time."""
        address = self._address.pop(connection, None)
        if address is None:
            return
        self._shares.remove(address)
        there = self._by_address[address]
        del there[connection]
        if not there:
            del self._by_address[address]

    def refuses(self, connection: _HttpProtocol) -> bool:
        """Whether the request of a connection beyond the maximum is refused; counts a refused one."""
        connection.is_excess = self._most is not None and self._figures.held > self._most
        if connection.is_excess:
            self._figures.refused += 1
        return connection.is_excess

    def _to_close(self, newcomer: str) -> _HttpProtocol | None:
        """Return the connection to close for one more of an address, or None.

        It is one of the address that has the most: an idle one, else one that still sends its request, if the newcomer
        has less. An address that has more than any other closes only its own idle ones.
        """
        held = self._shares.of(newcomer)
        is_largest = newcomer != _PROXIES
        for address, number in self._shares.largest_first():
            if address in (newcomer, _PROXIES):
                continue
            if number < held:
                break
            is_largest = False
            found = self._longest_idle(address) or (self._still_sending(address) if number > held else None)
            if found is not None:
                return found
        return self._longest_idle(newcomer if is_largest else None)

    def _longest_idle(self, address: str | None) -> _HttpProtocol | None:
        """Return the connection of an address, or of any, that has been idle for longest."""
        mine = (one for one in self._idle.since if address is None or self._address.get(one) == address)
        return next(mine, None)

    def _still_sending(self, address: str) -> _HttpProtocol | None:
        return next((one for one in self._by_address[address] if one.still_sends), None)


class _HttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with bounds on the time and the size of a request's head (slowloris), and on connections.

    Args:
        *args: uvicorn's.
        limits: The bounds.
        idle: The server's idle connections.
        opened: The server's open connections.
        **kwargs: uvicorn's.

    Attributes:
        is_excess: Whether it came beyond the maximum, and none could be closed for it.
    """

    def __init__(
        self, *args: Any, limits: HttpLimits, idle: _IdleConnections, opened: _OpenConnections, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._idle = idle
        self._opened = opened
        self._in_head = False
        self._head_bytes = 0
        self._skip_chunk = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._half_close = HalfClose(self)
        self._served: Any = cast("Any", self).app
        self.is_excess = False

    @property
    def still_sends(self) -> bool:
        """Whether a request has begun and is not complete yet."""
        cycle = self.cycle  # None until the first head is complete
        return self._in_head or (cycle.more_body and not cycle.response_started)

    def give_way(self) -> None:
        """Close the connection for one of another address."""
        if self._idle.since.pop(self, None) is not None:
            self.transport.close()
        else:
            self._refuse(b"503 Service Unavailable\r\nretry-after: %d" % RETRY_SECONDS)

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Start the header timeout; close a connection when there are too many."""
        super().connection_made(transport)
        self._opened.add(self)
        if transport.is_closing():
            return
        self._idle.since[self] = math.inf  # its first head has a timeout of its own
        self._in_head = True
        self._head_timer = self.loop.call_later(self._limits.header_seconds, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._idle.since.pop(self, None)
        self._opened.remove(self)
        self._disarm()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Keep the connection open for the responses to complete requests."""
        if not self._half_close.is_open_for_responses():
            return False
        self._disarm()
        return True

    def data_received(self, data: bytes) -> None:
        """Feed the parser, then see whether a head is still unfinished."""
        super().data_received(data)
        if not self._in_head:
            return
        if self._skip_chunk:
            self._skip_chunk = False  # a pipelined head may share its first chunk with the request before
        else:
            self._head_bytes += len(data)
        if self._head_bytes > self._limits.header_bytes:
            self._refuse(b"431 Request Header Fields Too Large")
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self._limits.header_seconds, self._too_slow)

    def on_message_begin(self) -> None:
        """A head begins."""
        self._idle.since.pop(self, None)
        self._in_head = True
        self._head_bytes = 0
        self._skip_chunk = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """A head is complete."""
        self._in_head = False
        self._disarm()
        found = _ABSOLUTE_TARGET.match(self.url)
        if found is not None:  # its host counts, whatever the header says (RFC 9112, 3.2.2)
            others = [header for header in self.headers if header[0] != b"host"]
            self.headers[:] = [*others, (b"host", found[1])]
        if self.is_excess:
            self.app = cast("Any", _busy if self._opened.refuses(self) else self._served)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Handle a sent response; the connection may be kept for another request."""
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
        else:  # as there, but without a timer for each request
            self.server_state.total_requests += 1
            self.flow.resume_reading()
        if not self.transport.is_closing() and not self._in_head and self.cycle.response_complete:
            self._idle.add(self, self.loop)

    def _disarm(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()
