"""Connections of HTTP whose client sends no more and still reads: the responses to complete requests are sent.

A client that closes its whole connection looks the same until something is sent to it. So the end of a client in the
middle of a stream means that it left, and before a response begins the client is probed with interim responses: one
that left answers the first with a reset, so that the next one fails, and the request is cancelled.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from toolweave.serve._http.exchange import Framing, HttpExchange

_FIRST_PROBES = (0.15, 0.05, 0.2, 0.4)
"""Seconds before each of the first probes. The second finds a client that left if its reset arrived meanwhile."""
_PROBE_SECONDS = 1.0
"""Seconds between later probes."""
_PROBE = b"HTTP/1.1 102 Processing\r\n\r\n"


class ProbedConnection(Protocol):
    """A connection whose client may close its sending side."""

    transport: asyncio.Transport
    is_encrypted: bool

    @property
    def newest(self) -> HttpExchange | None:
        """The last request whose head is complete."""
        ...

    @property
    def has_queued(self) -> bool:
        """Whether requests wait for the response to one before them."""
        ...


class HalfClose:
    """The half-close of one connection.

    Args:
        connection: The connection.
        loop: Its event loop.
    """

    def __init__(self, connection: ProbedConnection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop
        self._delays = iter(_FIRST_PROBES)
        self._is_probed = False

    def is_open_for_responses(self) -> bool:
        """Note that the client sends no more; return whether responses to it are due.

        With TLS no response is due: asyncio cannot send after the client's end.
        """
        connection = self._connection
        newest = connection.newest
        if connection.is_encrypted or newest is None or newest.response_complete:
            return False
        is_stream = newest.response_started and newest.framing is Framing.CHUNKED
        if not connection.has_queued and (newest.more_body or is_stream):
            return False
        newest.keep_alive = False
        if newest.more_body:
            # Its body stays incomplete for ever: the app must not wait for the rest.
            newest.disconnected = True
        if not self._is_probed:  # the end is received once more when reading is resumed
            self._is_probed = True
            self._schedule_probe()
        return True

    def _schedule_probe(self) -> None:
        self._loop.call_later(next(self._delays, _PROBE_SECONDS), self._probe)

    def _probe(self) -> None:
        connection = self._connection
        newest = connection.newest
        if newest is None or connection.transport.is_closing():
            return
        if not connection.has_queued:
            if newest.disconnected:  # the rest of its body never comes
                connection.transport.close()
                return
            # An interim response is possible only before the final one, and HTTP/1.0 has none (RFC 9110, 15.2).
            if not newest.response_started and newest.scope["http_version"] == "1.1":
                connection.transport.write(_PROBE)
        self._schedule_probe()
