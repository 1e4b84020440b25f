"""An incremental parser of server-sent events. Pure: no I/O."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from dataclasses import dataclass

__all__ = ["EventParser", "ServerSentEvent"]

_RETRY = re.compile(rb"[0-9]{1,9}")
# An id is sent back as a header; a longer one is ignored.
_MAX_ID_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event: its type and its data as UTF-8 text."""

    type: str
    data: bytes


_FIELDS = frozenset({b"", b"data", b"event", b"id", b"retry"})


class EventParser:
    """A parser of one event stream (the parsing rules of the HTML standard, 9.2.6).

    Attributes:
        last_id: The id of the last event that had one, or None.
        retry_seconds: The last reconnection time that the server sent, or None.
        taken: The number of events parsed so far.
        rests: The number of times that an event which has not ended was read.
    """

    def __init__(self, max_bytes: int) -> None:
        self.last_id: str | None = None
        self.retry_seconds: float | None = None
        self.taken: int = 0
        self.rests: int = 0
        self._max_bytes = max_bytes
        self._at_start = True
        self._after_return = False
        self._partial: list[bytes] = []
        self._data: list[bytes] = []
        self._type = b""
        self._id: bytes | None = None
        self._stray: list[bytes] = []
        self._size = 0

    def resumed(self) -> EventParser:
        """Return a parser for the stream that resumes this one."""
        parser = EventParser(self._max_bytes)
        parser.last_id = self.last_id
        parser.retry_seconds = self.retry_seconds
        return parser

    def feed(self, piece: bytes) -> list[ServerSentEvent]:
        """Return the events that this piece of the stream completes.

        Raises:
            ValueError: An event is larger than `max_bytes`.
        """
        if not piece:
            return []
        # A CRLF that is cut in two ends one line and not two.
        if self._after_return:
            piece = piece.removeprefix(b"\n")
        self._after_return = piece.endswith(b"\r")
        events: list[ServerSentEvent] = []
        # Of bytes: at CR, LF and CRLF only.
        lines = piece.splitlines()
        if not lines:
            return events
        if piece.endswith((b"\r", b"\n")):
            rest = b""
        else:
            rest = lines.pop()
        for line in lines:
            self._count(line)
            if self._partial:
                line = b"".join((*self._partial, line))
                self._partial.clear()
            event = self._take_line(line)
            if event is not None:
                events.append(event)
        if rest:
            self._count(rest)
            self._partial.append(rest)
        return events

    def rest(self) -> bytes:
        """Return the data of the event that has not ended, or the lines that are not of an event; both are kept.

        By the standard both are nothing. Whether they are whole depends on what the stream had to hold.
        """
        self.rests += 1
        last = b"".join(self._partial)
        field, _, value = last.partition(b":")
        if field == b"data":
            return b"\n".join((*self._data, value.removeprefix(b" ")))
        if self._data:
            return b"\n".join(self._data)
        return b"\n".join((*self._stray, last))

    def _count(self, text: bytes) -> None:
        self._size += len(text)
        if self._size > self._max_bytes:
            raise ValueError(f"an event is larger than {self._max_bytes} bytes")

    def _take_line(self, line: bytes) -> ServerSentEvent | None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(BOM_UTF8)
        if not line:
            return self._end_event()
        if line.startswith(b"data: "):
            # Most lines, and the long ones: copied once.
            self._data.append(line[6:])
            return None
        field, _, value = line.partition(b":")
        if field not in _FIELDS:
            # Bounded as the event is: an empty line ends both.
            self._stray.append(line)
        if not field:
            # A comment, such as a keep-alive.
            self._size -= len(line)
            return None
        self._take_field(field, value.removeprefix(b" "))
        return None

    def _take_field(self, field: bytes, value: bytes) -> None:
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._type = value
        elif field == b"id":
            if b"\0" not in value and len(value) <= _MAX_ID_BYTES:
                self._id = value
        elif field == b"retry" and _RETRY.fullmatch(value):
            self.retry_seconds = int(value) / 1000

    def _end_event(self) -> ServerSentEvent | None:
        if self._id is not None:
            self.last_id = self._id.decode("utf-8", "replace") or None
        data = b"\n".join(self._data)
        kind = self._type.decode("utf-8", "replace")
        self._data = []
        self._stray = []
        self._type = b""
        self._id = None
        self._size = 0
        if not data:
            return None
        self.taken += 1
        return ServerSentEvent(kind or "message", data)
