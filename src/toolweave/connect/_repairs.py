"""Repairs of malformed messages and results of one server: each kind is reported once, and counted.

An owner that wants errors in their place sets `repair_messages` to false: then the first report of a repair is the
error of its request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from toolweave._repairs import Repair
from toolweave.errors import ProtocolError, printable
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.lenient_offers import NoteChange

_log = logging.getLogger("toolweave.connect")

_MAX_KINDS = 50
_SWITCH = '`"repair_messages": false`'
NOT_JSON = Repair(
    given="`NaN`, `Infinity`, numbers out of range; half of a surrogate pair; control characters in a text",
    read_as="null; U+FFFD; the character",
    limit="an id is never repaired: it must be a text or a whole number",
    switch=_SWITCH,
    problem="it sent text that is not JSON (half a character, NaN, a number out of range): replaced by U+FFFD or null",
)
NULL_ERROR = Repair(
    given='`"error": null`, or an empty error, beside a result',
    read_as="the result",
    limit="an error with a code or a message stays an error",
    switch=_SWITCH,
    problem="its answers have 'error': null beside the result",
)
CONTENT_TYPE = Repair(
    given="JSON under another content type, or under none",
    read_as="the response",
    limit="only if it answers this request",
    switch=_SWITCH,
    problem="its answers have the content type {!r} in place of 'application/json'",
)
PREFIX = Repair(
    given="a URL for messages (HTTP+SSE) without the prefix of a proxy",
    read_as="the URL below the prefix",
    limit="same origin, and only if the first message met 404",
    switch=_SWITCH,
    problem="its event stream names {} for messages, which it takes at {}",
)
_FRAMED = Repair(
    given="messages over stdio behind a `Content-Length` header, in colours, or between NUL bytes",
    read_as="the messages",
    limit="a server that requires the header of messages to it does not answer",
    switch="nothing: they mean nothing else",
)
LOST_SESSION = Repair(
    given="a lost session, reported with another status than 404",
    read_as="a new session, and the call again",
    limit="once; with a 5xx status the call is not repeated; a response with a challenge is about credentials",
    switch="nothing: calls need a session",
)
MESSAGE_REPAIRS = (NULL_ERROR, NOT_JSON, CONTENT_TYPE, _FRAMED, LOST_SESSION, PREFIX)
"""Every repair of a message."""


class Repairs:
    """The repairs of one server's messages and results.

    Args:
        server: Name of the server.
        redact: Masks the secrets of its config in the texts, which quote it.
        refuse: Whether each repair is an error in its place.

    Attributes:
        on_problem: Called with each kind of repair the first time.
        note: Counts a repair; None if repairs are switched off, where the strict reading has an error.
    """

    def __init__(self, server: str, redact: Callable[[str], str], *, refuse: bool = False) -> None:
        self.on_problem: Callable[[str], None] = lambda problem: None
        self._server = server
        self._redact = redact
        self._refuse = refuse
        self.note: NoteChange | None = None
        if not refuse:
            self.note = self.add
        self._counts: dict[str, int] = {}

    def add(self, problem: str) -> None:
        """Count a repair; log and report the first of its kind.

        Raises:
            ProtocolError: Repairs are switched off.
        """
        if self._refuse:
            text = f"{problem}; with 'repair_messages': true such messages are read"
            raise ProtocolError(text, server=self._server, code=INTERNAL_ERROR)
        if problem in self._counts:
            self._counts[problem] += 1
            return
        if len(self._counts) >= _MAX_KINDS:
            return
        self._counts[problem] = 1
        shown = self._redact(problem)
        _log.warning("server %r: %s", self._server, printable(shown))
        self.on_problem(shown)

    def of_tool(self, name: str) -> Callable[[str], None]:
        """Return a callback that counts an oddity of a tool's result."""
        return lambda change: self.add(f"tool {name!r}: its result {change}")

    def of_answer(self, method: str) -> Callable[[str], None]:
        """Return a callback that counts an oddity of the answer to a request."""
        return lambda change: self.add(f"its answer to {method} {change}")

    @property
    def problems(self) -> tuple[str, ...]:
        """The kinds of repairs, each with the number of times after the first."""
        found = ((self._redact(problem), count) for problem, count in self._counts.items())
        return tuple(problem if count == 1 else f"{problem} ({count:,} times)" for problem, count in found)
