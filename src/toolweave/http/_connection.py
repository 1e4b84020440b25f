"""One HTTP/1.1 connection and the exchange that runs on it: httptools parses, asyncio carries.

A head whose bytes were seen before, as nearly every head of an answer was, is not parsed again: what it said is
looked up, and a body of a known length needs no parser. Every other answer goes through httptools, which therefore
alone decides what an answer is. Knows nothing of pools, redirects or JSON-RPC, and decodes no content encoding.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable
from dataclasses import dataclass, field
from socket import SO_KEEPALIVE, SOL_SOCKET
from typing import cast

import httptools

_MAX_HEAD_BYTES = 256 * 1024
_PAUSE_BYTES = 1024 * 1024
_BUFFER_BYTES = 64 * 1024
_MAX_KNOWN = 128
_MAX_KNOWN_BYTES = 2048
_KNOWN_STATUS = 200


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


@dataclass(slots=True)
class Head:
    """The head of an answer.

    Attributes:
        headers: With lower-case names; repeated ones are joined by commas, but for `set-cookie`.
        cookies: The values of `set-cookie`, which cannot be joined.
        length: The length of the body, where `Content-Length` says it.
        keeps_alive: Whether another exchange may follow on the connection.
        is_json: Whether it is the head of a success in JSON that is not compressed; known for heads met before.
        idle_seconds: Seconds for which the server keeps the idle connection, if it says so; negative: not read yet.
    """

    status: int = 0
    reason: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    cookies: list[str] = field(default_factory=list[str])
    length: int = 0
    keeps_alive: bool = False
    is_json: bool = False
    idle_seconds: float = -1.0

    def add(self, name: bytes, value: bytes) -> None:
        """Add one header."""
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        if key == "set-cookie":
            self.cookies.append(text)
        else:
            self.headers[key] = text if key not in self.headers else f"{self.headers[key]}, {text}"


class Socket(asyncio.BufferedProtocol):
    """One connection; `begin` an exchange with its request, then await its `news` and read the response.

    `known` holds heads by their bytes, and `buffer` is where bytes are received, for all connections to one origin on
    one event loop. A buffer of its own would be 256 KiB for each read, for which the C library maps memory each time.

    Attributes:
        ended: Whether it can carry no further exchange.
        error: The reason why it ended, or None.
        transport: The transport of the event loop.
        head: The head of the answer, once it is there (`has_head`).
        held: Bytes of the body that have arrived and are not read.
        lasting: Whether the exchange is a long-lived stream.
        idle_until: The time at which the server closes it, on the monotonic clock.
        arrivals: The number of pieces that have arrived, of all exchanges.
    """

    def __init__(self, known: dict[bytes, Head] | None = None, buffer: memoryview | None = None) -> None:
        self.transport: asyncio.Transport | None = None
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.ended = self.lasting = False
        self.idle_until = 0.0
        self.arrivals = 0
        self._known: dict[bytes, Head] = {} if known is None else known
        self._buffer = receive_buffer() if buffer is None else buffer
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._settled: Callable[[], None] | None = None
        self._poll = select.poll() if hasattr(select, "poll") else None
        self.error: NoAnswer | None = None
        self._paused = self._until_end = self._interim = False
        self._by_parser = False
        self._head_bytes = 0
        self._forget()

    def _forget(self) -> None:
        """Forget the last exchange; one that has failed was the connection's last, so `error` stays."""
        self.head = _NO_HEAD
        self.complete = self.has_head = self.reusable = self._heard = False
        self.pieces: list[bytes] = []
        self.held = self._missing = 0
        if self._by_parser:
            self._by_parser = self._until_end = self._interim = False
            self._head_bytes = 0

    def begin(self, request: bytes, waiter: asyncio.Future[None] | None = None, *, lasting: bool = False) -> None:
        """Begin an exchange by sending its request; `waiter` is done at the first news.

        Raises:
            NoAnswer: The connection is closed.
        """
        if self.transport is None or self.ended:
            raise NoAnswer("WriteError", "the connection is closed", sent=False)
        if self.has_head or self._heard:
            self._forget()
        self.lasting = lasting
        self._waiter = waiter
        self.transport.write(request)

    def news(self) -> asyncio.Future[None]:
        """Return a future that is done at the next event of the exchange.

        Raises:
            NoAnswer: The exchange has failed.
        """
        if self.error is not None:
            raise self.error
        loop = self._loop or asyncio.get_running_loop()  # asking for it costs a system call, on Python 3.11
        waiter: asyncio.Future[None] = asyncio.Future(loop=loop)
        self._waiter = waiter
        return waiter

    def take(self) -> bytes:
        """Return the part of the body that has arrived since the last call."""
        data = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
        self.pieces.clear()
        self.held = 0
        if self._paused and self.transport is not None and not self.ended:
            self._paused = False
            self.transport.resume_reading()
        return data

    def is_usable(self, now: float) -> bool:
        """Whether the idle connection is still open and silent, by a poll of its socket."""
        if self.ended or now >= self.idle_until or self.transport is None:
            return False
        return not (self.transport.is_closing() if self._poll is None else self._poll.poll(0))

    def is_free(self) -> bool:
        """Whether the exchange is over and another may follow."""
        return (
            self.complete
            and self.reusable
            and not self.ended
            # an answer that came before the whole request was sent: the rest would stand before the next one
            and self.transport is not None
            and self.transport.get_write_buffer_size() == 0
        )

    def abort(self) -> None:
        """Close at once; `connection_lost` follows.

        A forked process leaves the transport alone: the selector of its event loop is also the parent's, which would
        hear no more of this connection.
        """
        self.ended = True
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
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods only
        self._loop = asyncio.get_running_loop()
        connection = transport.get_extra_info("socket")
        # a stream may be silent for hours: the kernel notices when the peer is gone for good
        connection.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)
        if self._poll is not None:
            self._poll.register(connection.fileno(), select.POLLIN)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes are received."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take the received bytes, before anything else is received."""
        data = bytes(self._buffer[:nbytes])
        self.arrivals += 1
        if self.complete:  # no more was requested
            self.abort()
            return
        if not self._by_parser and not self._take_known(data):
            self._by_parser = True
            self._parse(data)
        elif self._by_parser:
            self._parse(data)
        if self.held > _PAUSE_BYTES and not self.complete and not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if self._settled is not None:
            self._settle()

    def _take_known(self, data: bytes) -> bool:
        """Handle a piece of an answer whose head is known; return False, with nothing done, where it is not."""
        if self.has_head:
            left = self._missing - len(data)
            if left < 0:  # data after the answer was not requested
                self.reusable = False
                data = data[:left]
        else:
            end = data.find(b"\r\n\r\n") + 4
            head = self._known.get(data[:end])
            if head is None:
                return False
            left = head.length - (len(data) - end)
            if left < 0:
                return False
            self._heard = self.has_head = self.reusable = True
            self.head = head
            data = data[end:]
        self._missing = left
        if data:
            self.pieces.append(data)
            self.held += len(data)
        self.complete = left <= 0
        return True

    def _parse(self, data: bytes) -> None:
        first = not self._heard
        self._heard = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            self._fail("RemoteProtocolError", str(exc))
        if not self.has_head:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES:
                self._fail("RemoteProtocolError", f"its headers are larger than {_MAX_HEAD_BYTES} bytes")
        elif first and not self._interim:
            self._remember(data)

    def _remember(self, data: bytes) -> None:
        """Cache a head that arrived in one piece, if its bytes alone determine where the answer ends."""
        head, length = self.head, self.head.headers.get("content-length", "")
        end = data.find(b"\r\n\r\n") + 4
        if (
            head.status == _KNOWN_STATUS
            and head.keeps_alive
            and not head.cookies
            and self.error is None
            and "transfer-encoding" not in head.headers
            and length.isascii()
            and length.isdigit()
            and 4 < end <= _MAX_KNOWN_BYTES
        ):
            if len(self._known) >= _MAX_KNOWN:  # heads that differ with each answer
                self._known.clear()
            head.length = int(length)
            kind, encoding = head.headers.get("content-type", ""), head.headers.get("content-encoding", "identity")
            head.is_json = kind.lower().startswith("application/json") and encoding.lower() == "identity"
            self._known[data[:end]] = head

    def eof_received(self) -> None:
        """Note that nothing more will come; the transport closes itself."""
        self.ended = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection, and end or fail the exchange."""
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
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self._settled is not None:
            self._settle()

    # what the parser calls

    def on_message_begin(self) -> None:
        """Note another answer."""
        if self.complete:  # another answer was not requested
            self.reusable = False
        elif not self.has_head:
            self.head = Head()

    def on_status(self, status: bytes) -> None:
        """Take the reason phrase."""
        if not self.has_head:
            self.head.reason += status.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        if not self.has_head:
            self.head.add(name, value)

    def on_headers_complete(self) -> None:
        """Note that the head is there."""
        if self.has_head:
            return
        head = self.head
        head.status = self._parser.get_status_code()
        if head.status < 100:
            self._fail("RemoteProtocolError", f"{head.status:03} is not an HTTP status")
            return
        if head.status < 200:
            if head.status == 101:
                self._fail("RemoteProtocolError", "it changed to another protocol")
            return
        self.has_head = True
        self.reusable = head.keeps_alive = self._parser.should_keep_alive()
        self._until_end = "content-length" not in head.headers and "transfer-encoding" not in head.headers

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        if self.complete:
            return
        self.held += len(body)
        self.pieces.append(body)

    def on_message_complete(self) -> None:
        """Note that the answer is whole, or that an interim one is over (RFC 9110, 15.2): the real one follows."""
        if self.has_head:
            self.complete = True
        else:
            self._interim = True

    def _fail(self, kind: str, detail: str) -> None:
        self.reusable = False
        if not self.complete and self.error is None:
            self.error = NoAnswer(kind, detail, heard=self._heard)
        self.abort()

    def _settle(self) -> None:
        if self._settled is not None and (self.complete or self.ended):
            settled, self._settled = self._settled, None
            settled()


def receive_buffer() -> memoryview:
    """Return a buffer to receive into, as a view, of which parts are no copies: TLS fills it in several steps."""
    return memoryview(bytearray(_BUFFER_BYTES))


_NO_HEAD = Head()
