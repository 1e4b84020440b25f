"""Requests of browsers and probes to small listeners that serve a page or two: the head of one, and the answer.

Reads no body.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus

import anyio
import anyio.abc
import httptools

__all__ = ["IncomingHead", "LocalPages", "page_answer", "read_head"]

_MAX_BYTES = 16 * 1024


class IncomingHead:
    """The head of a request, as httptools reads it.

    Attributes:
        method: Its method.
        target: Its path and query.
        hosts: The values of its `Host` headers.
        complete: Whether it came whole, and is the head of a request.
        too_long: Whether it was longer than 16 KiB.
    """

    def __init__(self) -> None:
        self.method = b""
        self.target = b""
        self.hosts: list[bytes] = []
        self.complete = False
        self.too_long = False

    def on_url(self, url: bytes) -> None:
        """Take a part of the target; called by the parser."""
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; called by the parser."""
        if name.lower() == b"host":
            self.hosts.append(value)

    def on_headers_complete(self) -> None:
        """Take the end of the head; called by the parser."""
        self.complete = True


async def read_head(stream: anyio.abc.ByteStream) -> IncomingHead:
    """Read the head of a request, which may be incomplete or no head at all.

    Raises:
        anyio.EndOfStream: The other side went away.
    """
    head = IncomingHead()
    parser = httptools.HttpRequestParser(head)
    size = 0
    try:
        while not head.complete:
            data = await stream.receive()
            size += len(data)
            if size > _MAX_BYTES:
                head.too_long = True
                return head
            parser.feed_data(data)
            head.method = parser.get_method()
    except httptools.HttpParserError:  # and its upgrades, which no browser asks for here
        head.complete = False
    return head


class LocalPages:
    """Serves one request a connection, and reads only its head.

    Args:
        answer: Returns the bytes of the answer to a head.
        log: Gets the failures of `answer`.
        subject: What is served, for the log.
        max_connections: Maximum number of connections; one beyond it is closed unread.
        seconds: Seconds for a whole exchange.
    """

    def __init__(
        self,
        answer: Callable[[IncomingHead], Awaitable[bytes]],
        *,
        log: logging.Logger,
        subject: str,
        max_connections: int,
        seconds: float,
    ) -> None:
        self._answer = answer
        self._log = log
        self._subject = subject
        self._max_connections = max_connections
        self._seconds = seconds
        self._connections = 0

    async def serve(self, stream: anyio.abc.ByteStream) -> None:
        """Answer the request on a connection, and close it."""
        async with stream:
            if self._connections >= self._max_connections:
                return
            self._connections += 1
            try:
                with anyio.move_on_after(self._seconds):
                    await stream.send(await self._answer(await read_head(stream)))
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # the other side went away
            except Exception:  # boundary: a request that fails must not end the process that it asks about
                self._log.exception("%s failed", self._subject)
            finally:
                self._connections -= 1


def page_answer(
    status: int, page: str | bytes, headers: Iterable[str], *, content_type: str = "text/html; charset=utf-8"
) -> bytes:
    """Return an answer with a page, after which the connection is closed.

    Args:
        status: Its status code.
        page: The page.
        headers: Further lines of its head, in ASCII.
        content_type: The type of the page, by default HTML.
    """
    body = page.encode() if isinstance(page, str) else page
    lines = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"Content-Type: {content_type}",
        *headers,
        "Connection: close",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body
