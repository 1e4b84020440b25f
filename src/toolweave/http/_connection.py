"""One HTTP/1.1 connection and the exchange that runs on it: httptools parses, asyncio carries.

Every response goes through the parser. Knows nothing of pools, redirects or JSON-RPC, and decodes no content encoding.

Why a request can be sent again if the connection ends before any byte of the response: the end of a TCP stream carries
the number of bytes that the server had received when it closed. If the kernel still waits for the acknowledgment of
some of the request, or never got them, then the server closed before the request was whole (RFC 9112, 9.6: it
processes nothing that arrives afterwards). Linux gives the number of these bytes.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
from collections.abc import Callable
from socket import SO_KEEPALIVE, SOL_SOCKET
from typing import cast

import httptools
import msgspec

from toolweave.http._tls_errors import explained

if sys.platform == "linux":
    import fcntl
    import termios

_MAX_HEAD_BYTES = 256 * 1024
_PAUSE_BYTES = 1024 * 1024
_BUFFER_BYTES = 64 * 1024
_UNPOLLED_SECONDS = 0.01
"""The time for which an idle connection is used again without a look at its socket, where a resend can be proved."""


class TransportError(Exception):
    """A request got no (whole) answer.

    Attributes:
        sent: False when the request provably never reached the server.
        got_bytes: Whether anything of the answer arrived.
    """

    def __init__(self, kind: str, detail: str = "", *, sent: bool = True, got_bytes: bool = False) -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.sent = sent
        self.got_bytes = got_bytes


def unreached(kind: str, exc: Exception) -> TransportError:
    """Return the error of a connection that could not be opened."""
    return TransportError(kind, explained(str(exc)), sent=False)


class Head(msgspec.Struct, gc=False):
    """The head of a response.

    Attributes:
        headers: With lower-case names; repeated ones are joined by commas, except for `set-cookie`.
        cookies: The values of `set-cookie`, which cannot be joined.
    """

    status: int
    reason: str
    headers: dict[str, str]
    cookies: list[str]


class Socket(asyncio.BufferedProtocol):
    """One connection; `begin` an exchange with its request, then await its `news` and read the response.

    `buffer` is where bytes are received, for all connections to one origin on one event loop. The buffer that asyncio
    makes for each read has 256 KiB, for which the C library maps memory each time.

    Attributes:
        ended: Whether it can carry no further exchange.
        error: The reason why it ended, or None.
        transport: The transport of the event loop.
        head: The head of the answer, once it is there.
        has_head: Whether the head of the answer has arrived.
        complete: Whether the answer has arrived whole.
        reusable: Whether the server keeps the connection after this answer.
        pieces: The parts of the body that have arrived and are not read.
        held: The number of bytes that have arrived since the last read.
        on_body: Called by the parser with each part of the body.
        on_status: Called by the parser with each part of the reason phrase.
        lasting: Whether the exchange is a long-lived stream.
        idle_since: The time at which the last exchange ended, on the monotonic clock.
        idle_until: The time at which the server closes it, on the monotonic clock.
        arrivals: The number of pieces that have arrived, of all exchanges.
        on_news: Called at each event of the exchange, if that was begun so: nobody waits for it then.
    """

    def __init__(self, buffer: memoryview | None = None) -> None:
        self.transport: asyncio.Transport | None = None
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.ended = self.lasting = False
        self.idle_since: float = 0.0
        self.idle_until: float = 0.0
        self.arrivals: int = 0
        self.on_news: Callable[[], None] | None = None
        self._buffer = receive_buffer() if buffer is None else buffer
        # The parser calls these for each piece: methods of lists run no Python code.
        self.pieces: list[bytes] = []
        self._reason: list[bytes] = []
        self.on_body: Callable[[bytes], None] = self.pieces.append
        self.on_status: Callable[[bytes], None] = self._reason.append
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._settled: Callable[[], None] | None = None
        self._poll = select.poll() if hasattr(select, "poll") else None
        self._counts_unreceived = False
        self.error: TransportError | None = None
        self._paused = False
        self.head: Head = _NO_HEAD
        self.complete = self.has_head = self.reusable = self._got_bytes = False
        self.held: int = 0

    def begin(
        self,
        request: bytes,
        waiter: asyncio.Future[None] | None = None,
        *,
        lasting: bool = False,
        on_news: Callable[[], None] | None = None,
    ) -> None:
        """Begin an exchange by sending its request; `waiter` is done at the first news, `on_news` is called at each.

        If the connection is closed, `waiter` is done at once, and `news` raises the error; `on_news` is called when the
        event loop has closed it.
        """
        # What the last exchange has left. `head` and `reusable` are set before they are read; after an error no other
        # exchange follows.
        self.complete = self.has_head = self._got_bytes = False
        self.pieces.clear()
        self.held = 0
        self.lasting: bool = lasting
        self._waiter = waiter
        self.on_news = on_news
        transport = self.transport
        if transport is not None and not self.ended:
            transport.write(request)
            # Nothing waits to be written before a request, so asyncio passes it to the kernel at once. If the kernel
            # refuses it, which closes the transport, no byte has left.
            if not transport.is_closing():
                return
        self.error = TransportError("WriteError", "the connection is closed", sent=False)
        self.abort()
        if waiter is not None:
            waiter.set_result(None)

    def news(self) -> asyncio.Future[None]:
        """Return a future that is done at the next event of the exchange.

        Raises:
            TransportError: The exchange has failed.
        """
        if self.error is not None:
            raise self.error
        # Asking for it costs a system call, on Python 3.11.
        loop = self._loop or asyncio.get_running_loop()
        waiter: asyncio.Future[None] = asyncio.Future(loop=loop)
        self._waiter = waiter
        return waiter

    def drain(self) -> bytes:
        """Return the part of the body that has arrived since the last call."""
        if len(self.pieces) == 1:
            data = self.pieces[0]
        else:
            data = b"".join(self.pieces)
        self.pieces.clear()
        self.held = 0
        if self._paused:
            self._resume_reading()
        return data

    def _resume_reading(self) -> None:
        if self.transport is not None and not self.ended:
            self._paused = False
            self.transport.resume_reading()

    def is_usable(self, now: float) -> bool:
        """Whether the idle connection is still open and silent, as far as that matters: see `_counts_unreceived`.

        A poll of the socket finds a close, or bytes that nobody requested, that the event loop has not read yet. It is
        left out just after an exchange if a request that meets a close can be proved not to have been received.
        """
        transport = self.transport
        if transport is None or self.ended or now >= self.idle_until:
            return False
        if self._counts_unreceived and now < self.idle_since + _UNPOLLED_SECONDS:
            return True
        if self._poll is None:
            return not transport.is_closing()
        return not self._poll.poll(0)

    def is_free(self) -> bool:
        """Whether the exchange is over and another may follow."""
        if not (self.complete and self.reusable):
            return False
        if self.transport is None or self.ended:
            return False
        # An answer may arrive before the whole request is sent: the rest would stand before the next one.
        return self.transport.get_write_buffer_size() == 0

    def abort(self) -> None:
        """Close at once; `connection_lost` follows.

        A forked process leaves the transport alone: the selector of its event loop is also the parent's, which would
        get no more events of this connection.
        """
        self.ended: bool = True
        if self.transport is not None and self._process == os.getpid():
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
        """Remember the transport."""
        # The transport of uvloop is one by its methods only.
        self.transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()
        connection = transport.get_extra_info("socket")
        # a stream may be silent for hours: the kernel notices when the peer is gone
        connection.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)
        if self._poll is not None:
            self._poll.register(connection.fileno(), select.POLLIN)
        # uvloop writes at the end of a turn of the loop, and TLS sends further bytes: neither has been tried.
        writes_at_once = isinstance(self._loop, asyncio.SelectorEventLoop)
        is_plain = transport.get_extra_info("sslcontext") is None
        self._counts_unreceived = sys.platform == "linux" and writes_at_once and is_plain

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes are received."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take the received bytes, before anything else is received."""
        self.arrivals += 1
        self._got_bytes = True
        self.held += nbytes
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            self._fail("RemoteProtocolError", str(exc))
        if not self.has_head and self.held > _MAX_HEAD_BYTES:
            self._fail("RemoteProtocolError", f"its headers are larger than {_MAX_HEAD_BYTES} bytes")
        if self.held > _PAUSE_BYTES:
            self._pause_reading()
        self._wake()
        if self._settled is not None:
            self._settle()

    def _wake(self) -> None:
        """Wake the task that waits for the exchange, or call back."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if self.on_news is not None:
            self.on_news()

    def _pause_reading(self) -> None:
        """Let the server wait until the body is read, which bounds the memory of an unread response."""
        if self.complete or self._paused:
            return
        if self.transport is not None:
            self._paused = True
            self.transport.pause_reading()

    def eof_received(self) -> None:
        """Note that nothing more will come; the transport closes itself."""
        self.ended = True
        if not self._got_bytes and self._is_partly_unreceived():
            self._fail("RemoteProtocolError", "the server disconnected before it received the request", sent=False)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection, and end or fail the exchange."""
        self.ended = True
        if not self.complete and self.error is None:
            self._end_unfinished(exc)
        self._wake()
        if self._settled is not None:
            self._settle()

    def _end_unfinished(self, exc: Exception | None) -> None:
        """End or fail an exchange whose connection was lost: only a body without a length ends with it."""
        if exc is not None:
            self._fail("ReadError", explained(str(exc)))
        elif not self.has_head:
            self._fail("RemoteProtocolError", "the server disconnected without sending a response")
        elif self.head.headers.keys().isdisjoint(("content-length", "transfer-encoding")):
            self.complete: bool = True
        else:
            self._fail("RemoteProtocolError", "peer closed connection without sending complete message body")

    # what the parser calls

    def on_message_begin(self) -> None:
        """Note another response."""
        if self.complete:
            raise ValueError("another response was not requested")  # which ends the parsing
        self.head = Head(0, "", {}, [])

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; those behind a body are ignored."""
        if self.has_head:
            return
        key = _NAMES.get(name) or name.decode("latin-1").lower()
        text = value.decode("latin-1")
        headers = self.head.headers
        if key == "set-cookie":
            self.head.cookies.append(text)
        elif key in headers:
            headers[key] += f", {text}"
        else:
            headers[key] = text

    def on_headers_complete(self) -> None:
        """Note that the head is there."""
        head = self.head
        head.reason = b"".join(self._reason).decode("latin-1")
        self._reason.clear()
        status = head.status = self._parser.get_status_code()
        if status < 200:
            if status < 100:
                self._fail("RemoteProtocolError", f"{status:03} is not an HTTP status")
            elif status == 101:
                self._fail("RemoteProtocolError", "it changed to another protocol")
            return
        self.has_head: bool = True
        self.reusable: bool = self._parser.should_keep_alive()

    def on_message_complete(self) -> None:
        """Note that the response is whole; after an interim one (RFC 9110, 15.2) the real one follows."""
        self.complete = self.has_head

    def _fail(self, kind: str, detail: str, *, sent: bool = True) -> None:
        self.reusable = False
        if not self.complete and self.error is None:
            self.error = TransportError(kind, detail, sent=sent, got_bytes=self._got_bytes)
        self.abort()

    def _is_partly_unreceived(self) -> bool:
        """Whether the server closed before it had received all bytes of the request, which it therefore ignores."""
        if sys.platform != "linux" or not self._counts_unreceived:
            return False
        if self.transport is None:
            return False
        if self.transport.get_write_buffer_size() > 0:
            return True
        descriptor = self.transport.get_extra_info("socket").fileno()
        unacknowledged = fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4))
        return int.from_bytes(unacknowledged, sys.byteorder) > 0

    def _settle(self) -> None:
        if self._settled is not None and (self.complete or self.ended):
            settled = self._settled
            self._settled = None
            settled()


def receive_buffer() -> memoryview:
    """Return a buffer to receive into, as a view, of which parts are not copies: TLS fills it in several steps."""
    return memoryview(bytearray(_BUFFER_BYTES))


_NAMES = {
    spelling.encode(): name
    for name in ("content-length", "content-type", "date", "server", "connection", "mcp-session-id", "set-cookie")
    for spelling in (name, name.title())
}
"""The usual spellings of usual headers."""
_NO_HEAD = Head(0, "", {}, [])
