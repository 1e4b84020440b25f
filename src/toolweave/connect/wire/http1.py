"""HTTP/1.1 to one origin over pooled keep-alive connections.

Knows nothing of JSON-RPC, redirects or credentials, and decodes no content encoding.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Mapping
from functools import partial
from typing import Self
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from toolweave.connect.wire.exchange import NoAnswer, Socket
from toolweave.connect.wire.head import request_head

__all__ = ["HttpClient", "NoAnswer", "Response"]

MAX_SOCKETS = 100
MAX_IDLE = 20
_IDLE_SECONDS = 60.0
_LINGER_SECONDS = 0.5
_MAX_HEADS = 256
_IDLE_HINT = re.compile(r"timeout=(\d{1,6})")


class Response:
    """An answer whose head has arrived; `close` it, or use it as a context manager.

    Attributes:
        headers: With lower-case names; repeated ones are joined by commas.
    """

    def __init__(self, client: HttpClient, socket: Socket) -> None:
        self.status = socket.status
        self.reason = socket.reason.decode("latin-1")
        self.headers: Mapping[str, str] = socket.headers
        self._client = client
        self._socket: Socket | None = socket

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
            await socket.news()
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
                raise NoAnswer("ReadError", f"the answer is larger than {max_bytes} bytes", heard=True, limit=max_bytes)
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def whole(self, max_bytes: int) -> bytes | None:
        """Return the whole body if it has arrived already, as nearly every answer has, and `read` need not be asked."""
        socket = self._socket
        return socket.take() if socket is not None and socket.complete and 0 < socket.held <= max_bytes else None

    async def beginning(self, max_bytes: int, seconds: float) -> bytes:
        """Return what of the body comes within both bounds, also of one that breaks off."""
        pieces: list[bytes] = []
        size = 0
        with anyio.move_on_after(seconds):
            try:
                while size < max_bytes and (piece := await self.piece()):
                    pieces.append(piece)
                    size += len(piece)
            except NoAnswer:
                pass
        return b"".join(pieces)[:max_bytes]

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
        if self._socket is not None:
            self.close()


class HttpClient:
    """Sends requests to the origin of one URL; `connect_seconds` bounds TCP and TLS together.

    At most `max_sockets` are open for requests; one beyond that waits, for as long as it might connect.
    Lasting streams do not count, so that they starve nobody.
    """

    def __init__(self, url: str, *, connect_seconds: float, max_sockets: int = MAX_SOCKETS) -> None:
        parts = urlsplit(url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._secure else 80)
        self._connect_seconds = connect_seconds
        self._max_sockets = max_sockets
        self._slots = anyio.Semaphore(max_sockets, fast_acquire=True)
        self._tls: ssl.SSLContext | None = None
        self._idle: list[Socket] = []
        self._open: set[Socket] = set()
        self._closed = False
        self._heads: dict[tuple[object, ...], bytes] = {}
        host = self._host if self._host.isascii() else self._host.encode("idna").decode("ascii")
        host = f"[{host}]" if ":" in host else host
        self._named = host if self._port == (443 if self._secure else 80) else f"{host}:{self._port}"

    @property
    def open_sockets(self) -> int:
        """The number of connections that are open, busy or idle."""
        return sum(not socket.ended for socket in self._open)

    async def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        repeatable: bool = False,
        lasting: bool = False,
    ) -> Response:
        """Send a request and return its answer as soon as the head has arrived.

        `headers` have lower-case names. A `repeatable` request goes out once more when a kept connection
        turns out to be closed before anything of the answer arrived. A `lasting` one is answered by a
        stream that may stay open for hours.

        Raises:
            NoAnswer: There is no answer.
        """
        head = self.head(method, target, headers)
        return await self.ask(head, body if method == "POST" else None, repeatable=repeatable, lasting=lasting)

    async def ask(
        self, head: bytes, body: bytes | None, *, repeatable: bool = False, lasting: bool = False
    ) -> Response:
        """Send a request whose head was made by `head`, with a body if it is a POST; see `send`."""
        request = head + b"\r\n" if body is None else b"%b%d\r\n\r\n%b" % (head, len(body), body)
        if not lasting:
            try:
                self._slots.acquire_nowait()
            except anyio.WouldBlock:
                await self._wait_for_slot()
        try:
            socket = self._take_idle()
            if socket is not None:
                try:
                    return await self._exchange(socket, request, lasting)
                except NoAnswer as exc:
                    if exc.heard or (exc.sent and not repeatable):
                        raise
            return await self._exchange(await self._connect(), request, lasting)
        except BaseException:
            if not lasting:
                self._slots.release()
            raise

    def release(self, socket: Socket) -> None:
        """Take a connection back after its exchange."""
        if socket.is_free() and len(self._idle) < MAX_IDLE:
            hint = socket.headers.get("keep-alive")
            seconds = _IDLE_SECONDS if hint is None else _idle_seconds(hint)
            socket.idle_until = time.monotonic() + seconds
            self._idle.append(socket)
        else:
            self._drop(socket)
        if not socket.lasting:
            self._slots.release()

    def close(self) -> None:
        """Close every connection; what still waits for one is not sent."""
        self._closed = True
        for socket in list(self._open):
            self._drop(socket)
        self._idle.clear()

    def head(self, method: str, target: str, headers: Mapping[str, str]) -> bytes:
        """Return the head of a request, for `ask`.

        Raises:
            NoAnswer: It cannot be sent.
        """
        key = (method, target, *headers.items())
        head = self._heads.get(key)
        if head is None:
            try:
                head = request_head(method, target, self._named, headers)
            except ValueError as exc:
                raise NoAnswer("LocalProtocolError", str(exc), sent=False) from None
            if len(self._heads) >= _MAX_HEADS:  # headers that change with each request
                self._heads.clear()
            self._heads[key] = head
        return head

    async def _wait_for_slot(self) -> None:
        with anyio.move_on_after(self._connect_seconds):
            await self._slots.acquire()
            return
        text = f"all {self._max_sockets} connections were busy for {self._connect_seconds:g} s"
        raise NoAnswer("PoolTimeout", text, sent=False) from None

    async def _exchange(self, socket: Socket, request: bytes, lasting: bool) -> Response:
        socket.begin()
        socket.lasting = lasting
        try:
            socket.write(request)
            while not socket.has_head:
                if socket.error is not None:
                    raise socket.error
                await socket.news()
        except BaseException:
            self._drop(socket)
            raise
        return Response(self, socket)

    def _take_idle(self) -> Socket | None:
        now = time.monotonic()
        while self._idle:
            socket = self._idle.pop()
            if socket.is_usable(now):
                return socket
            self._drop(socket)
        return None

    def _drop(self, socket: Socket) -> None:
        self._open.discard(socket)
        socket.abort()

    async def _connect(self) -> Socket:
        loop = asyncio.get_running_loop()
        self._check_open()
        try:
            with anyio.fail_after(self._connect_seconds):
                if self._secure and self._tls is None:
                    # reads the certificates of the system: too slow for the loop
                    self._tls = await anyio.to_thread.run_sync(ssl.create_default_context)
                _, socket = await loop.create_connection(Socket, self._host, self._port, ssl=self._tls)
        except TimeoutError:
            raise NoAnswer("ConnectTimeout", f"not within {self._connect_seconds:g} s", sent=False) from None
        except (OSError, UnicodeError) as exc:
            raise NoAnswer("ConnectError", str(exc), sent=False) from None
        if self._closed:  # meanwhile
            socket.abort()
        self._check_open()
        self._open.add(socket)
        return socket

    def _check_open(self) -> None:
        if self._closed:
            raise NoAnswer("ConnectError", "the client is closed", sent=False)


def _idle_seconds(hint: str) -> float:
    """Return how long a server keeps an idle connection, a little less than it says so as not to meet its end."""
    found = _IDLE_HINT.search(hint)
    return min(int(found.group(1)) - 1.0, _IDLE_SECONDS) if found else _IDLE_SECONDS
