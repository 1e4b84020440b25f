"""Serving an HTTP app on a port: the start, the end, and the signals for it.

The order of the end is what keeps calls alive. First every response closes its connection, while requests are still
accepted for `drain_seconds`; then the port closes, idle streams end and idle connections are closed; then running calls
have `shutdown_seconds`; then they are cancelled. A second signal, or a cancelled server, skips the waiting but none of
the steps. Knows nothing of MCP.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
import socket
import ssl
import sys
from collections.abc import Callable

import anyio

from toolweave.serve._http.app import HttpApp
from toolweave.serve._http.connection import HttpConnection, ServerState
from toolweave.serve._http.listener import empty_queues
from toolweave.serve._http.open_connections import IdleConnections, OpenConnections
from toolweave.serve._signals import stop_signals

_log = logging.getLogger("toolweave.serve._http.app")
_GRACE_SECONDS = 1.0
_POLL_SECONDS = 0.02
_BACKLOG = 2048


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
    way: each response closes its connection, and the readiness check fails. Then no connection is accepted, and
    requests on the others are answered for a second more. SIGHUP calls `app.on_hangup`, if that is set.

    Args:
        app: Made by `McpServer.asgi_app`.
        host: The address or name to bind.
        port: The port, 0 for a free one.
        tls: The files of certificate and key; None for plain HTTP.
        on_started: Called with the address, such as `http://127.0.0.1:8000`, once requests are accepted.
        reuse_port: Whether other processes of this user serve the same port (`SO_REUSEPORT`); the system spreads the
            connections.

    Raises:
        OSError: The port cannot be bound, or a file of `tls` cannot be read.
    """
    bound = bind(host, port, reuse_port=reuse_port)
    stopping = _ShutdownSignals()
    try:
        encryption = None if tls is None else _encryption(*tls)
        url = f"{'http' if tls is None else 'https'}://{_authority(host, bound)}"

        def started() -> None:
            _log.info("serving MCP at %s", url)
            if not app.authorizes and not ipaddress.ip_address(bound.getsockname()[0]).is_loopback:
                _log.warning("%s is open to everyone who can reach it; `auth` would ask who calls", url)
            if on_started is not None:
                on_started(url)

        # the socket listens only after the signal handlers, the lifespan and all imports are ready
        with stop_signals(stopping.stop, other=stopping.other(app)), stopping.starting:
            failure: OSError | None = None
            async with app.lifespan():
                server = stopping.server = _HttpServer(app, bound, encryption)
                try:
                    await server.run(started)
                except OSError as exc:
                    # raised behind the lifespan, whose task group would make it one of a group of errors
                    failure = exc
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
        self.server: _HttpServer | None = None

    def other(self, app: HttpApp) -> dict[int, Callable[[], object]]:
        """Return the functions of the signals that do more or less than `stop`, by number."""
        own: dict[int, Callable[[], object]] = {signal.SIGINT: self._interrupt}
        if app.on_hangup is not None and hasattr(signal, "SIGHUP"):
            own[signal.SIGHUP] = app.on_hangup
        return own

    def _interrupt(self) -> None:
        """Stop without the time to drain: a user who presses Ctrl-C is not a load balancer."""
        if self.server is not None:
            self.server.hurried.set()
        self.stop()

    def stop(self) -> None:
        """Handle a signal."""
        if self.server is None:
            self.starting.cancel()
        else:
            self.server.stop()


def bind(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Return a bound socket that does not listen yet: until it does, connections are refused.

    Raises:
        OSError: The port cannot be bound.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        # Windows would let another program take the port over with this option; elsewhere it only skips the wait after
        # a restart.
        if sys.platform != "win32":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            # The default differs between systems. A server that is bound to IPv6 should not answer IPv4 on some of
            # them.
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio sets it only on its own sockets
        bound.bind(address[:2])
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound


def _encryption(certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context


def _authority(host: str, bound: socket.socket) -> str:
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"{host}:{bound.getsockname()[1]}"


class _HttpServer:
    """A listening port and its connections.

    Args:
        app: The app.
        bound: The bound socket.
        encryption: The certificate and key; None for plain HTTP.

    Attributes:
        hurried: Set when the time to drain is skipped.
    """

    def __init__(self, app: HttpApp, bound: socket.socket, encryption: ssl.SSLContext | None) -> None:
        limits = app.limits
        idle = IdleConnections(limits.keep_alive_seconds)
        opened = OpenConnections(app.shares, idle, limits.connections)
        self.hurried = anyio.Event()
        self._app = app
        self._bound = bound
        self._encryption = encryption
        self._state = ServerState(app.http, limits, idle, opened)
        self._stopping = anyio.Event()
        self._forced = anyio.Event()

    def stop(self) -> None:
        """Begin the shutdown; the second time, cancel the calls that run."""
        if self._stopping.is_set():
            self._forced.set()
            self.hurried.set()
            self._app.abort()
        self._stopping.set()

    async def run(self, started: Callable[[], None]) -> None:
        """Accept connections until `stop` is called, then let running calls finish, and close all connections.

        Args:
            started: Called once connections are accepted.

        Raises:
            OSError: The socket cannot listen.
        """
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(
            lambda: HttpConnection(self._state, loop), sock=self._bound, ssl=self._encryption, backlog=_BACKLOG
        )
        try:
            started()
            await self._stopping.wait()
            await self._turn_away(listener)
            await self._finish_calls()
        except BaseException:
            self._app.abort()
            self.hurried.set()
            raise
        finally:
            self._close(listener)
            with anyio.CancelScope(shield=True):
                await self._end()

    async def _turn_away(self, listener: asyncio.Server) -> None:
        """Continue to serve for a while, with responses that close their connections, and close the port.

        Data that is sent on an idle connection while it is being closed is lost, and a listener that is closed resets
        the connections in its queue. So both stay open until clients and balancers had the time to see that this server
        ends.
        """
        self._app.draining = True
        seconds = self._app.limits.drain_seconds
        if seconds == 0 or self.hurried.is_set():
            self._close(listener)
            return
        self._state.is_closing = True
        with anyio.move_on_after(seconds):
            await self.hurried.wait()
        await empty_queues([self._bound], hurried=self.hurried)
        self._close(listener)
        with anyio.move_on_after(_GRACE_SECONDS):  # a connection that is closed before its request was read is reset
            await self.hurried.wait()

    def _close(self, listener: asyncio.Server) -> None:
        listener.close()
        self._bound.close()

    async def _finish_calls(self) -> None:
        """Close idle connections, and the others with their responses; cancel calls that take too long."""
        # Streams end before connections are closed: their clients get an orderly end and reconnect elsewhere.
        await self._app.drain()
        self._close_connections()
        with anyio.move_on_after(self._app.limits.shutdown_seconds) as patience:
            await self._until_closed()
        if patience.cancelled_caught:
            self._app.abort()
            with anyio.move_on_after(2 * _GRACE_SECONDS):
                await self._until_closed()

    def _close_connections(self) -> None:
        self._state.is_closing = True
        for connection in list(self._state.connections):
            connection.close_when_answered()

    async def _until_closed(self) -> None:
        """Wait until no connection is open and no request runs, or until a second signal."""
        while (self._state.connections or self._state.tasks) and not self._forced.is_set():
            await anyio.sleep(_POLL_SECONDS)

    async def _end(self) -> None:
        """End requests whose calls were cancelled, then their tasks, then connections; bounded."""
        self._close_connections()
        state = self._state
        with anyio.move_on_after(_GRACE_SECONDS):
            while state.connections or state.tasks:
                await anyio.sleep(_POLL_SECONDS)
        # Only now: a call that is cancelled by its scope can still answer, and a task that is cancelled cannot.
        for task in list(state.tasks):
            task.cancel()
        with anyio.move_on_after(_GRACE_SECONDS):
            while state.tasks:
                await anyio.sleep(_POLL_SECONDS)
        for connection in list(state.connections):
            connection.transport.abort()
