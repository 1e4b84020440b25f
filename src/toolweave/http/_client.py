"""HTTP/1.1 to one origin over pooled keep-alive connections, through a proxy where there is one.

Knows nothing of JSON-RPC, redirects or credentials.

Why the pool loses no slot: each request that does not last takes one, from `_free` or by waiting in `_turns`, and
returns it exactly once: by `release` after its exchange, or by `_leave` after a failure. A slot that is returned goes
to the request that has waited longest. A waiter that is cancelled after its turn came passes the slot on. A kept
connection may have been closed by the server meanwhile: only a repeatable request that got no byte of an answer is sent
again, on a new one; any other only if the server provably did not receive it (see `_connection`).
"""

from __future__ import annotations

import asyncio
import math
import re
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Self, cast
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import msgspec

from toolweave._json_types import without_members
from toolweave.http._connect import Address, connect_tcp
from toolweave.http._connection import Head, Socket, TransportError, receive_buffer, unreached
from toolweave.http._inflate import PIECE_BYTES, DecompressionError, Inflater
from toolweave.http._proxy import HttpProxy, refused_by_proxy
from toolweave.http._request_head import request_head
from toolweave.http._url import host_of, port_of

_IDLE_SECONDS = 60.0
_LINGER_SECONDS = 0.5
_CONTENT_METHODS = frozenset(("PATCH", "POST", "PUT"))
"""Methods whose requests say the length of their content even if that is 0 (RFC 9110, 8.6)."""
_IDLE_HINT = re.compile(r"timeout=(\d{1,6})")


class BodyError(TransportError):
    """An answer whose body is not accepted.

    Attributes:
        detail: The human-readable reason.
        limit: The bound in bytes that it passed, or None.
        bomb: Whether it is a decompression bomb.
    """

    def __init__(self, detail: str, *, limit: int | None = None, bomb: bool = False) -> None:
        super().__init__("ReadError", detail, got_bytes=True)
        self.detail = detail
        self.limit = limit
        self.bomb = bomb


class Response(msgspec.Struct, eq=False):
    """An answer whose head has arrived; `close` it, or use it as a context manager.

    A body in a known content encoding is decompressed.

    Attributes:
        head: The head as it came.
        body: The whole raw body, if it arrived with the head, as nearly every one does; the connection is free then.
    """

    _client: HttpClient
    _socket: Socket | None
    head: Head
    body: bytes | None
    _inflater: Inflater | None = None

    @property
    def encoding(self) -> str:
        """The content encoding of the body, in lower case; empty for none."""
        value = self.head.headers.get("content-encoding", "").strip().lower()
        if value == "identity":
            return ""
        return value

    @property
    def status(self) -> int:
        """The status code."""
        return self.head.status

    @property
    def reason(self) -> str:
        """The reason phrase."""
        return self.head.reason

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, with lower-case names; repeated ones are joined by commas."""
        return self.head.headers

    async def piece(self) -> bytes:
        """Return the next piece of the body, or nothing at its end.

        Raises:
            TransportError: It breaks off, or cannot be inflated.
        """
        if not Inflater.reads(self.encoding):
            return await self._piece()
        if self._inflater is None:
            self._inflater = Inflater(self.encoding)
        inflater = self._inflater
        try:
            while not (piece := inflater.next_piece()):
                arrived = await self._piece()
                if not arrived:
                    inflater.finish()
                    return b""
                inflater.feed(arrived)
        except DecompressionError as exc:
            raise BodyError(str(exc), bomb=exc.too_large) from None
        # A small answer can inflate to a large one without a single wait for the network, and would hold the loop.
        if len(piece) == PIECE_BYTES:  # there is more, and others have their turn
            await asyncio.sleep(0)
        return piece

    async def _piece(self) -> bytes:
        if self.body is not None:
            body = self.body
            self.body = None
            return body
        socket = self._socket
        while socket is not None:
            if socket.pieces:
                return socket.drain()
            if socket.complete:
                return b""
            await socket.news()
        return b""

    async def read(self, max_bytes: int) -> bytes:
        """Return the whole body.

        Raises:
            TransportError: It broke off, or is larger than `max_bytes`.
        """
        pieces: list[bytes] = []
        size = 0
        while piece := await self.piece():
            size += len(piece)
            if size > max_bytes:
                raise BodyError(f"the answer is larger than {max_bytes} bytes", limit=max_bytes)
            pieces.append(piece)
        if len(pieces) == 1:
            return pieces[0]
        return b"".join(pieces)

    async def beginning(self, max_bytes: int, seconds: float) -> bytes:
        """Return the part of the body that arrives within both bounds, also of one that breaks off."""
        pieces: list[bytes] = []
        size = 0
        with anyio.move_on_after(seconds):
            try:
                while size < max_bytes and (piece := await self.piece()):
                    pieces.append(piece)
                    size += len(piece)
            except TransportError:
                pass
        return b"".join(pieces)[:max_bytes]

    def with_body(self, body: bytes) -> Response:
        """Return the answer with a body that was read, and inflated, before."""
        headers = without_members(self.head.headers, "content-encoding")
        return Response(self._client, None, msgspec.structs.replace(self.head, headers=headers), body)

    def finish(self) -> None:
        """Close the answer; the connection is kept if the rest, such as a stream's last chunk, arrives soon."""
        socket = self._socket
        self._socket = None
        if socket is None:
            return
        if socket.complete or socket.ended:
            self._client.release(socket)
        else:
            # An event stream that has given its result still owes the last chunk (`0\r\n\r\n`). Closing now would cost
            # a new connection, with TLS, for the next request.
            socket.when_settled(partial(self._client.release, socket), _LINGER_SECONDS)

    def close(self) -> None:
        """Give the connection back if the answer has arrived whole, else close it."""
        socket = self._socket
        self._socket = None
        if socket is not None:
            self._client.release(socket)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._socket is not None:
            self.close()


class _Turn:
    """A request that waits for a connection.

    Attributes:
        come: Whether its turn has come: it was sent on `socket`, or may open a connection itself where that is None.
        news: Done when its answer begins to arrive, or when it may open a connection.
    """

    __slots__ = ("come", "news", "request", "socket")

    def __init__(self, request: bytes, news: asyncio.Future[None]) -> None:
        self.request = request
        self.news = news
        self.come = False
        self.socket: Socket | None = None


class HttpClient:
    """Sends requests to the origin of one URL; `connect_seconds` bounds TCP, a proxy's tunnel and TLS together.

    All go the same way: straight to the origin, or through `proxy`. It forwards plain requests and opens a tunnel for
    encrypted ones (RFC 9110, 9.3.6), which it cannot read.

    At most `max_connections` are open for requests; a request beyond that waits for as long as its caller does, and
    the one that has waited longest goes first: it is sent on a connection as soon as that is free. All are kept until
    they have been idle for a minute, or for as long as the server says. Lasting streams do not count, so that they
    block no request.

    Given `addresses` are connected to instead of looking the name up, which TLS still checks and `Host` still names.

    Attributes:
        proxy: The proxy that all requests go through, or None.
        forwarded: Whether it reads them, and may answer itself.
    """

    def __init__(
        self,
        url: str,
        *,
        connect_seconds: float,
        max_connections: int = 100,
        proxy: HttpProxy | None = None,
        addresses: Sequence[Address] = (),
    ) -> None:
        self._secure = urlsplit(url).scheme == "https"
        self._host = host_of(url)
        self._port = port_of(url)
        self.proxy = proxy
        self._addresses = () if proxy is not None else addresses
        self._connect_seconds = connect_seconds
        self._max = self._free = max_connections
        self._turns: OrderedDict[_Turn, None] = OrderedDict()
        self._tls: ssl.SSLContext | None = None
        self._idle: list[Socket] = []
        self._open: set[Socket] = set()
        self._lasting = 0
        self._closed = False
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_at = math.inf
        self._buffer = receive_buffer()
        if self._host.isascii():
            host = self._host
        else:
            host = self._host.encode("idna").decode("ascii")
        host = f"[{host}]" if ":" in host else host
        self._place = f"{host}:{self._port}"
        if self._port == (443 if self._secure else 80):
            self._named = host
        else:
            self._named = self._place
        self.forwarded: bool = proxy is not None and not self._secure
        if self.forwarded:
            self._authority = f"http://{self._named}"
        else:
            self._authority = ""
        self._for_proxy: dict[str, str] = {}
        if proxy is not None and self.forwarded:
            self._for_proxy = _credentials(proxy)

    @property
    def open_sockets(self) -> int:
        """The number of connections that are open, busy or idle."""
        return sum(not socket.ended for socket in self._open)

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a connection."""
        return len(self._turns)

    def received_mark(self) -> object:
        """Return a value that changes whenever bytes arrive on one of the connections."""
        return {id(socket): socket.arrivals for socket in self._open}

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
            TransportError: The server does not answer.
        """
        content = method in _CONTENT_METHODS or bool(body)
        head = self.head(method, target, headers, content=content)
        return await self.ask(head, body if content else None, repeatable=repeatable, lasting=lasting)

    def begin(self, head: bytes, body: bytes, on_news: Callable[[], None]) -> Socket | None:
        """Send a request on an idle connection; return that, or None if it would have to wait, with nothing sent.

        `on_news` is called at each event of the exchange. The one who began it ends it: by `release` once the answer is
        complete, by `abandon`, or by `ask` with the connection, which waits for the answer.
        """
        if self._turns or not self._free:
            return None
        socket = self._take_idle()
        if socket is None:
            return None
        self._free -= 1
        socket.begin(_request(head, body), on_news=on_news)
        return socket

    def abandon(self, socket: Socket) -> None:
        """End an exchange whose answer is not wanted any more, by closing its connection."""
        self._drop(socket)
        self._leave(lasting=False)

    async def ask(
        self,
        head: bytes,
        body: bytes | None,
        *,
        repeatable: bool = False,
        lasting: bool = False,
        begun: Socket | None = None,
    ) -> Response:
        """Send a request whose head was made by `head`, with a body if that is for one with content; see `send`.

        `begun` is the connection on which `begin` sent it already.
        """
        request = _request(head, body)
        if begun is None:
            socket = await self._admitted(request, lasting=lasting)
        else:
            socket = begun
        try:
            if socket is None:
                socket = self._begin_on_idle(request, lasting=lasting)
            is_kept = True
            while socket is None or not socket.has_head:
                if socket is None:
                    socket = await self._connect()
                    is_kept = False
                    socket.begin(request, lasting=lasting)
                try:
                    await socket.news()
                except BaseException as exc:
                    self._drop(socket)
                    # Also for a cancellation: the answer may still arrive, so nobody else may get this connection.
                    # A kept connection may have been closed by the server in the very moment of sending, which no check
                    # can exclude. Then the request goes out once more, on a new connection, if that is safe. What fails
                    # on a new one has failed.
                    if not is_kept or not _is_safe_again(exc, repeatable=repeatable):
                        raise
                    socket = None
        except BaseException:
            self._leave(lasting=lasting)
            raise
        if not socket.complete:
            return Response(self, socket, socket.head, None)
        response = Response(self, None, socket.head, socket.drain())
        self.release(socket)
        return response

    async def _admitted(self, request: bytes, *, lasting: bool) -> Socket | None:
        """Wait for the request's turn; return the connection it was sent on, or None where it was not sent yet.

        `_free` counts permits, not sockets: a permit is taken before any await, so no two requests take the same one.
        `ask` gives it back on every path, by `release` or `_leave`.
        """
        if lasting:
            self._lasting += 1
        elif self._free:
            self._free -= 1
        else:
            return await self._wait_for_turn(request)
        return None

    def _begin_on_idle(self, request: bytes, *, lasting: bool) -> Socket | None:
        socket = self._take_idle()
        if socket is not None:
            socket.begin(request, lasting=lasting)
        return socket

    def release(self, socket: Socket) -> None:
        """Take a connection back after its exchange: for the request that has waited longest, or to be kept."""
        lasting = socket.lasting
        # A stream's connection was not counted; it is kept only if that does not leave more than the bound open.
        is_surplus = lasting and len(self._open) - self._lasting >= self._max
        if is_surplus or not socket.is_free():
            self._drop(socket)
        else:
            hint = socket.head.headers.get("keep-alive")
            now = time.monotonic()
            seconds = _IDLE_SECONDS if hint is None else _idle_seconds(hint)
            socket.idle_since = now
            socket.idle_until = now + seconds
            # Handed over with its permit, before it is seen as idle: a request that arrives now cannot overtake those
            # that wait.
            if self._turns and not lasting and self._hand_over(socket, now):
                return
            self._idle.append(socket)
            if socket.idle_until < self._sweep_at:
                self._sweep_in(seconds, now)
        # The connection stays idle, the permit goes to the next one that waits, or back.
        if lasting or self._turns:
            self._leave(lasting=lasting)
        else:
            self._free += 1

    def close(self) -> None:
        """Close every connection; requests that wait for one are not sent."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for socket in list(self._open):
            self._drop(socket)
        self._idle.clear()

    def head(self, method: str, target: str, headers: Mapping[str, str], *, content: bool | None = None) -> bytes:
        """Return the head of a request, for `ask`: of one with content if it is a POST, or as `content` says.

        Raises:
            TransportError: It cannot be sent.
        """
        content = method == "POST" if content is None else content
        try:
            named = {**self._for_proxy, **headers}
            return request_head(method, target, self._named, named, authority=self._authority, content=content)
        except ValueError as exc:
            raise TransportError("LocalProtocolError", str(exc), sent=False) from None

    # who may use a connection: at most `max_connections` requests at once, the others in the order they came

    async def _wait_for_turn(self, request: bytes) -> Socket | None:
        """Wait for the request's turn; return the connection it was sent on, or None where it needs one."""
        turn = _Turn(request, asyncio.get_running_loop().create_future())
        self._turns[turn] = None
        try:
            await turn.news
        except BaseException:
            # Still in line: it leaves it, and holds nothing.
            if not turn.come:
                self._turns.pop(turn, None)
            else:  # cancelled with an answer under way, or at the very moment its turn came
                if turn.socket is not None:
                    self._drop(turn.socket)
                self._leave(lasting=False)
            raise
        return turn.socket

    def _next_turn(self) -> _Turn | None:
        while self._turns:
            turn, _ = self._turns.popitem(last=False)
            # A cancelled waiter has its future done; its own `except` removes it or has not run yet. It must not get
            # the permit.
            if not turn.news.done():  # not cancelled
                turn.come = True
                return turn
        return None

    def _hand_over(self, socket: Socket, now: float) -> bool:
        """Send the next waiting request on a free connection: no turn of the event loop lies between."""
        if not socket.is_usable(now):
            self._drop(socket)
            self._leave(lasting=False)
            return True
        turn = self._next_turn()
        if turn is None:
            return False
        # The sleeping task is not needed to send: its request goes out here, and its future is done when the answer
        # begins, which saves a turn of the event loop for each queued request.
        turn.socket = socket
        socket.begin(turn.request, turn.news)
        return True

    def _leave(self, *, lasting: bool) -> None:
        """Admit the next request when one has ended."""
        if lasting:
            self._lasting -= 1
            return
        turn = self._next_turn()
        if turn is None:
            self._free += 1
        else:
            turn.news.set_result(None)

    # connections

    def _take_idle(self) -> Socket | None:
        now = time.monotonic()
        while self._idle:
            # The last one first: under little load the others become old and are closed, instead of all being kept just
            # young enough.
            socket = self._idle.pop()
            if socket.is_usable(now):
                return socket
            self._drop(socket)
        return None

    def _close_idle(self) -> None:
        """Close connections that were idle for too long, and schedule the check of the next one."""
        now = time.monotonic()
        kept: list[Socket] = []
        for socket in self._idle:
            if socket.ended or socket.idle_until <= now:
                self._drop(socket)
            else:
                kept.append(socket)
        self._idle[:] = kept
        self._sweep_at = math.inf
        if kept:
            self._sweep_in(min(socket.idle_until for socket in kept) - now, now)

    def _sweep_in(self, seconds: float, now: float) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep_at = now + seconds
        self._sweep = asyncio.get_running_loop().call_later(seconds, self._close_idle)

    def _drop(self, socket: Socket) -> None:
        self._open.discard(socket)
        socket.abort()

    async def _connect(self) -> Socket:
        self._check_open()
        try:
            with anyio.fail_after(self._connect_seconds):
                socket = await self._opened()
        except TimeoutError:
            raise TransportError("ConnectTimeout", f"not within {self._connect_seconds:g} s", sent=False) from None
        except (OSError, UnicodeError) as exc:
            raise unreached("ConnectError", exc) from None
        # `close` saw this connection neither in `_open` nor in `_idle`; it has to go here.
        if self._closed:  # meanwhile
            socket.abort()
        self._check_open()
        self._open.add(socket)
        return socket

    async def _opened(self) -> Socket:
        """Open a connection to the origin, or to the proxy that forwards to it, or a tunnel through that."""
        proxy = self.proxy
        needs_tls = self._secure or (proxy is not None and proxy.secure)
        if needs_tls and self._tls is None:
            # reads the certificates of the system: too slow for the loop
            self._tls = await anyio.to_thread.run_sync(ssl.create_default_context)
        if proxy is None:
            return await self._reached(self._host, self._port, secure=self._secure)
        try:
            socket = await self._reached(proxy.host, proxy.port, secure=proxy.secure)
        except (OSError, UnicodeError) as exc:
            raise unreached("ProxyError", exc) from None
        if self._secure:
            return await self._tunnelled(socket, proxy)
        return socket

    async def _reached(self, host: str, port: int, *, secure: bool) -> Socket:
        _, socket = await asyncio.get_running_loop().create_connection(
            partial(Socket, self._buffer),
            sock=await connect_tcp(host, port, self._addresses),
            ssl=self._tls if secure else None,
            server_hostname=host if secure else None,
        )
        return socket

    async def _tunnelled(self, outer: Socket, proxy: HttpProxy) -> Socket:
        """Return a connection to the origin in TLS, inside of one to the proxy: it is asked to CONNECT, and no more."""
        request = request_head("CONNECT", "", self._place, _credentials(proxy), authority=self._place)
        try:
            try:
                outer.begin(request + b"\r\n")
                while not outer.has_head:
                    await outer.news()
            except TransportError as exc:
                raise TransportError("ProxyError", str(exc), sent=False) from None
            head = outer.head
            # RFC 9110, 9.3.6: only a 2xx switches to the tunnel; the body of any other answer is the proxy's, not the
            # origin's.
            if not 200 <= head.status < 300:
                raise TransportError("ProxyError", refused_by_proxy(head.status, head.reason, self._place), sent=False)
            socket = Socket(self._buffer)
            transport = await asyncio.get_running_loop().start_tls(
                cast("asyncio.Transport", outer.transport), socket, cast("ssl.SSLContext", self._tls),
                server_hostname=self._host,
            )  # fmt: skip
            socket.connection_made(cast("asyncio.Transport", transport))  # which asyncio does not call here
        except BaseException:
            outer.abort()
            raise
        return socket

    def _check_open(self) -> None:
        if self._closed:
            raise TransportError("ConnectError", "the client is closed", sent=False)


def _request(head: bytes, body: bytes | None) -> bytes:
    """Return the bytes of a request."""
    if body is None:
        return head + b"\r\n"
    return b"%b%d\r\n\r\n%b" % (head, len(body), body)


def _credentials(proxy: HttpProxy) -> dict[str, str]:
    if proxy.authorization is None:
        return {}
    return {"proxy-authorization": proxy.authorization}


def _is_safe_again(exc: BaseException, *, repeatable: bool) -> bool:
    """Return whether a request that failed so can be sent again (RFC 9110, 9.2.2; RFC 9112, 9.3.1)."""
    if not isinstance(exc, TransportError) or exc.got_bytes:
        return False
    return repeatable or not exc.sent


def _idle_seconds(hint: str) -> float:
    """Return the seconds to keep an idle connection: a little less than the server does, to avoid its end."""
    found = _IDLE_HINT.search(hint)
    if found:
        return min(max(int(found.group(1)) - 1.0, 0.0), _IDLE_SECONDS)
    return _IDLE_SECONDS
