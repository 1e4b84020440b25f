"""Connections of HTTP whose client sends no more and still reads: the responses to complete requests are sent.

A client that closes its whole connection looks the same until something is sent to it. So the end of a client in the
middle of a stream means that it left, and before a response begins the client is probed with interim responses: one
that left answers the first with a reset, so that the next one fails, and the request is cancelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_FIRST_PROBES = (0.15, 0.05, 0.2, 0.4)
"""Seconds before each of the first probes. The second finds a client that left if its reset arrived meanwhile."""
_PROBE_SECONDS = 1.0
"""Seconds between later probes."""
_PROBE = b"HTTP/1.1 102 Processing\r\n\r\n"


class HalfClose:
    """The half-close of one connection.

    Args:
        connection: uvicorn's connection.
    """

    def __init__(self, connection: HttpToolsProtocol) -> None:
        self._connection = connection
        self._delays = iter(_FIRST_PROBES)
        self._is_probed = False

    def is_open_for_responses(self) -> bool:
        """Note that the client sends no more; return whether responses to it are due.

        With TLS there are none: asyncio cannot send after the client's end.
        """
        connection = self._connection
        cycle: Any = connection.cycle  # None until the first head is complete
        if connection.scheme == "https" or cycle is None or cycle.response_complete:
            return False
        is_stream = cycle.response_started and cycle.chunked_encoding
        if not connection.pipeline and (cycle.more_body or is_stream):
            return False
        cycle.keep_alive = False
        if cycle.more_body:
            cycle.disconnected = True
        if not self._is_probed:  # the end is received once more when reading is resumed
            self._is_probed = True
            self._schedule_probe()
        return True

    def _schedule_probe(self) -> None:
        self._connection.loop.call_later(next(self._delays, _PROBE_SECONDS), self._probe)

    def _probe(self) -> None:
        connection = self._connection
        if connection.transport.is_closing():
            return
        cycle = connection.cycle
        if not connection.pipeline:
            if cycle.disconnected:  # the rest of its body never comes
                connection.transport.close()
                return
            if not cycle.response_started and cycle.scope["http_version"] == "1.1":
                connection.transport.write(_PROBE)
        self._schedule_probe()
