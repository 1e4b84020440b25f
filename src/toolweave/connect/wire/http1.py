"""HTTP/1.1 to one origin over pooled keep-alive sockets: httptools parses, asyncio carries.

Knows nothing of JSON-RPC, redirects or credentials, and decodes no content encoding.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from socket import SO_KEEPALIVE, SOL_SOCKET
from typing import Self, cast
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httptools

from toolweave.connect.wire.head import request_head

__all__ = ["HttpClient", "NoAnswer", "Response"]

MAX_SOCKETS = 100
MAX_IDLE = 20
_MAX_HEAD_BYTES = 256 * 1024
_PAUSE_BYTES = 1024 * 1024
_LINGER_SECONDS = 0.5


class NoAnswer(Exception):
    """A request got no (whole) answer.

    Attributes:
        sent: False when the request provably never reached the server.
        heard: Whether anything of the answer arrived.
    """

    def __init__(self, kind: str, detail: str = "", *, sent: bool = True, heard: bool = False) -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.sent = sent
        self.heard = heard


class _Socket(asyncio.Protocol):
    """One connection and the exchange that runs on it, if any."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.ended = False
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._settled: Callable[[], None] | None = None
        self._poll = select.poll() if hasattr(select, "poll") else None
        self.begin()

    def begin(self) -> None:
        """Forget the last exchange."""
        self.status = 0
        self.reason = b""
        self.headers: dict[str, str] = {}
        self.complete = self.has_head = self.reusable = False
        self.pieces: list[bytes] = []
        self.error: NoAnswer | None = None
        self._heard = self._until_end = self._paused = False
        self._held = self._head_bytes = 0

    def write(self, request: bytes) -> None:
        """Send a request."""
        if self.transport is None or self.ended:
            raise NoAnswer("WriteError", "the connection is closed", sent=False)
        self.transport.write(request)

    async def wait(self) -> None:
        """Return when something has happened."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def take(self) -> bytes:
        """Return what of the body has arrived since the last time."""
        data = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
        self.pieces.clear()
        self._held = 0
        if self._paused and self.transport is not None and not self.ended:
            self._paused = False
            self.transport.resume_reading()
        return data

    def is_usable(self) -> bool:
        """Whether the server has left the idle connection alone, as far as the kernel knows."""
        if self.ended or self.transport is None or self.transport.is_closing():
            return False
        return self._poll is None or not self._poll.poll(0)

    def abort(self) -> None:
        """Close at once; `connection_lost` follows."""
        self.ended = True
        if self.transport is not None:
            self.transport.abort()

    def when_settled(self, callback: Callable[[], None], seconds: float) -> None:
        """Call back once when the rest of the answer has arrived, or can no longer, or `seconds` are over."""
        timer = asyncio.get_running_loop().call_later(seconds, self.abort)

        def settled() -> None:
            timer.cancel()
            callback()

        self._settled = settled

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods only
        connection = transport.get_extra_info("socket")
        # a stream may be silent for hours: the kernel notices when the peer is gone for good
        connection.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)
        if self._poll is not None:
            self._poll.register(connection.fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        if self.complete:  # nobody asked for more
            self.abort()
            return
        self._heard = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            self._fail("RemoteProtocolError", str(exc))
        if not self.has_head:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES:
                self._fail("RemoteProtocolError", f"its headers are larger than {_MAX_HEAD_BYTES} bytes")
        if self._held > _PAUSE_BYTES and not self.complete and not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        if self.complete or self.error is not None:
            pass
        elif exc is not None:
            self._fail("ReadError", str(exc))
        elif not self.has_head:
            self._fail("RemoteProtocolError", "the server disconnected without sending a response")
        elif self._until_end:
            self.complete = True
        else:
            self._fail("RemoteProtocolError", "peer closed connection without sending complete message body")
        self._wake()

    # what the parser calls

    def on_message_begin(self) -> None:
        if self.complete:  # nobody asked for another answer
            self.reusable = False

    def on_status(self, status: bytes) -> None:
        if not self.has_head:
            self.reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.has_head:
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        known = self.headers.get(key)
        self.headers[key] = text if known is None else f"{known}, {text}"

    def on_headers_complete(self) -> None:
        if self.has_head:
            return
        self.status = self._parser.get_status_code()
        if self.status < 200:
            if self.status == 101:
                self._fail("RemoteProtocolError", "it changed to another protocol")
            return
        self.has_head = True
        self.reusable = self._parser.should_keep_alive()
        self._until_end = "content-length" not in self.headers and "transfer-encoding" not in self.headers

    def on_body(self, body: bytes) -> None:
        if self.complete:
            return
        self._held += len(body)
        self.pieces.append(body)

    def on_message_complete(self) -> None:
        if self.has_head:
            self.complete = True
        else:  # an interim answer (RFC 9110, 15.2): the one that counts follows
            self.reason = b""
            self.headers = {}

    def _fail(self, kind: str, detail: str) -> None:
        self.reusable = False
        if not self.complete and self.error is None:
            self.error = NoAnswer(kind, detail, heard=self._heard)
        self.abort()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self._settled is not None and (self.complete or self.ended):
            settled, self._settled = self._settled, None
            settled()


class Response:
    """An answer whose head has arrived; `close` it, or use it as a context manager.

    Attributes:
        headers: With lower-case names; repeated ones are joined by commas.
    """

    def __init__(self, client: HttpClient, socket: _Socket) -> None:
        self.status = socket.status
        self.reason = socket.reason.decode("latin-1")
        self.headers: Mapping[str, str] = socket.headers
        self._client = client
        self._socket: _Socket | None = socket

    async def piece(self) -> bytes:
        """Return the next piece of the body, or nothing at its end; raises `NoAnswer` when it breaks off."""
        socket = self._socket
        while socket is not None:
            if socket.pieces:
                return socket.take()
            if socket.complete:
                return b""
            if socket.error is not None:
                raise socket.error
            await socket.wait()
        return b""

    async def read(self, max_bytes: int) -> bytes:
        """Return the whole body.

        Raises:
            NoAnswer: It broke off, or is larger than `max_bytes`.
        """
        pieces: list[bytes] = []
        size = 0
        while piece := await self.piece():
            size += len(piece)
            if size > max_bytes:
                raise NoAnswer("ReadError", f"the answer is larger than {max_bytes} bytes", heard=True)
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def finish(self) -> None:
        """Be done with the answer: the connection is kept if the rest of it, a stream's last chunk, comes soon."""
        socket, self._socket = self._socket, None
        if socket is not None and (socket.complete or socket.ended):
            self._client.release(socket)
        elif socket is not None:
            socket.when_settled(partial(self._client.release, socket), _LINGER_SECONDS)

    def close(self) -> None:
        """Give the connection back if the answer has arrived whole, else close it."""
        socket, self._socket = self._socket, None
        if socket is not None:
            self._client.release(socket)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class HttpClient:
    """Sends requests to the origin of one URL; `connect_seconds` bounds TCP and TLS together.

    At most `max_sockets` are open; a request beyond that waits for one.
    """

    def __init__(self, url: str, *, connect_seconds: float, max_sockets: int = MAX_SOCKETS) -> None:
        parts = urlsplit(url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._secure else 80)
        self._connect_seconds = connect_seconds
        self._slots = anyio.Semaphore(max_sockets, fast_acquire=True)
        self._tls: ssl.SSLContext | None = None
        self._idle: list[_Socket] = []
        self._open: set[_Socket] = set()
        host = self._host if self._host.isascii() else self._host.encode("idna").decode("ascii")
        host = f"[{host}]" if ":" in host else host
        self._named = host if self._port == (443 if self._secure else 80) else f"{host}:{self._port}"

    @property
    def open_sockets(self) -> int:
        """The number of connections that are open, busy or idle."""
        return sum(not socket.ended for socket in self._open)

    async def send(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"", *, repeatable: bool = False
    ) -> Response:
        """Send a request and return its answer as soon as the head has arrived.

        `headers` have lower-case names. A `repeatable` request goes out once more when a kept connection
        turns out to be closed before anything of the answer arrived.

        Raises:
            NoAnswer: There is no answer.
        """
        try:
            request = request_head(method, target, self._named, headers, len(body)) + body
        except ValueError as exc:
            raise NoAnswer("LocalProtocolError", str(exc), sent=False) from None
        try:
            self._slots.acquire_nowait()
        except anyio.WouldBlock:
            await self._slots.acquire()
        try:
            socket = self._take_idle()
            if socket is not None:
                try:
                    return await self._exchange(socket, request)
                except NoAnswer as exc:
                    if exc.heard or (exc.sent and not repeatable):
                        raise
            return await self._exchange(await self._connect(), request)
        except BaseException:
            self._slots.release()
            raise

    def release(self, socket: _Socket) -> None:
        """Take a connection back after its exchange."""
        if socket.complete and socket.reusable and not socket.ended and len(self._idle) < MAX_IDLE:
            self._idle.append(socket)
        else:
            self._drop(socket)
        self._slots.release()

    def close(self) -> None:
        """Close every connection."""
        for socket in list(self._open):
            self._drop(socket)
        self._idle.clear()

    async def _exchange(self, socket: _Socket, request: bytes) -> Response:
        socket.begin()
        try:
            socket.write(request)
            while not socket.has_head:
                if socket.error is not None:
                    raise socket.error
                await socket.wait()
        except BaseException:
            self._drop(socket)
            raise
        return Response(self, socket)

    def _take_idle(self) -> _Socket | None:
        while self._idle:
            socket = self._idle.pop()
            if socket.is_usable():
                return socket
            self._drop(socket)
        return None

    def _drop(self, socket: _Socket) -> None:
        self._open.discard(socket)
        socket.abort()

    async def _connect(self) -> _Socket:
        loop = asyncio.get_running_loop()
        try:
            with anyio.fail_after(self._connect_seconds):
                if self._secure and self._tls is None:
                    # reads the certificates of the system: too slow for the loop
                    self._tls = await anyio.to_thread.run_sync(ssl.create_default_context)
                _, socket = await loop.create_connection(_Socket, self._host, self._port, ssl=self._tls)
        except TimeoutError:
            raise NoAnswer("ConnectTimeout", f"not within {self._connect_seconds:g} s", sent=False) from None
        except (OSError, UnicodeError) as exc:
            raise NoAnswer("ConnectError", str(exc), sent=False) from None
        self._open.add(socket)
        return socket
