"""One HTTP/1.1 connection and the exchange that runs on it: httptools parses, asyncio carries.

Knows nothing of pools, redirects or JSON-RPC, and decodes no content encoding.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from socket import SO_KEEPALIVE, SOL_SOCKET
from typing import cast

import httptools

__all__ = ["NoAnswer", "Socket"]

_MAX_HEAD_BYTES = 256 * 1024
_PAUSE_BYTES = 1024 * 1024


class NoAnswer(Exception):
    """A request got no (whole) answer.

    Attributes:
        sent: False when the request provably never reached the server.
        heard: Whether anything of the answer arrived.
        limit: The bound in bytes that the answer passed, or None.
    """

    def __init__(
        self, kind: str, detail: str = "", *, sent: bool = True, heard: bool = False, limit: int | None = None
    ) -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.sent = sent
        self.heard = heard
        self.limit = limit


class Socket(asyncio.Protocol):
    """One connection; `begin` an exchange, `write` the request, await its `news` and look what has arrived.

    Attributes:
        held: Bytes of the body that have arrived and are not taken.
        lasting: Whether the exchange is a stream that nobody waits for.
        idle_until: When the server will have closed it, on the monotonic clock.
    """

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.ended = self.lasting = False
        self.idle_until = 0.0
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
        self.held = self._head_bytes = 0

    def write(self, request: bytes) -> None:
        """Send a request."""
        if self.transport is None or self.ended:
            raise NoAnswer("WriteError", "the connection is closed", sent=False)
        self.transport.write(request)

    def news(self) -> asyncio.Future[None]:
        """Return what is done when something has happened."""
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def take(self) -> bytes:
        """Return what of the body has arrived since the last time."""
        data = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
        self.pieces.clear()
        self.held = 0
        if self._paused and self.transport is not None and not self.ended:
            self._paused = False
            self.transport.resume_reading()
        return data

    def is_usable(self, now: float) -> bool:
        """Whether the server has left the idle connection alone, as far as the kernel knows."""
        if self.ended or now >= self.idle_until or self.transport is None or self.transport.is_closing():
            return False
        return self._poll is None or not self._poll.poll(0)

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
        """Remember the transport."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods only
        connection = transport.get_extra_info("socket")
        # a stream may be silent for hours: the kernel notices when the peer is gone for good
        connection.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)
        if self._poll is not None:
            self._poll.register(connection.fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """Parse what arrived."""
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
        if self.held > _PAUSE_BYTES and not self.complete and not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end, and what it means for the exchange."""
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
        """Note another answer."""
        if self.complete:  # nobody asked for another answer
            self.reusable = False

    def on_status(self, status: bytes) -> None:
        """Take the reason phrase."""
        if not self.has_head:
            self.reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        if self.has_head:
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = text if key not in self.headers else f"{self.headers[key]}, {text}"

    def on_headers_complete(self) -> None:
        """Note that the head is there."""
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
        """Take a piece of the body."""
        if self.complete:
            return
        self.held += len(body)
        self.pieces.append(body)

    def on_message_complete(self) -> None:
        """Note that the answer is whole."""
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
