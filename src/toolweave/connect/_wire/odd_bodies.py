"""Bodies of answers over HTTP that are neither JSON nor events of their type, and the messages in them. Pure.

Proxies and serverless platforms change content types, and interpreters write warnings before the answer. Whether a
message of these is the answer to a request is decided by its id, as for any other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from toolweave._repairs import Repair
from toolweave.protocol.brackets import opened
from toolweave.protocol.lenient_messages import message_lines
from toolweave.protocol.sse import EventParser

_SWITCH = '`"repair_messages": false`'
_LINES = Repair(
    given="an answer of several messages, one in a line",
    read_as="the messages",
    limit="only if each line is a message",
    switch=_SWITCH,
    problem="its answers hold a message in each line, in place of events",
)
_EVENTS = Repair(
    given="events under another content type than `text/event-stream`",
    read_as="the events",
    limit="as far as they arrive within a few seconds",
    switch=_SWITCH,
    problem="its answers are events under another content type",
)
_BEHIND = Repair(
    given="warnings of an interpreter or other text around an answer",
    read_as="the answer",
    limit="only an answer to this request; never a request of the server",
    switch=_SWITCH,
    problem="its answers have other text around the message",
)
ODD_STREAM = Repair(
    given="the answer in an event stream: without its empty line, as an event of another name, or as bare JSON",
    read_as="the answer",
    limit="only a whole answer to this request",
    switch=_SWITCH,
    problem="its answers are in a form of event streams that no parser reads",
)
ODD_BODY_REPAIRS = (_LINES, _EVENTS, ODD_STREAM, _BEHIND)
"""Every repair of the body of an answer."""
# The members of an answer, of which servers write any first; of HTML no element has this form.
_ANSWER = re.compile(r'\{\s*"(?:jsonrpc|id|result|error)"\s*:')
# Only the end of the answer is searched for, so no number is converted: that of many digits costs the most of all text.
_SCANNER = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)
_MAX_CONTAINERS = 200_000
"""Arrays and objects in a body that is searched: each is made once more than in a body that is JSON."""
_FIELD = re.compile(rb"\s*(?:(?:event|data|id|retry):|:)")


def messages_in(body: bytes) -> Iterator[tuple[Repair, list[bytes]]]:
    """Yield the texts of messages in a body, with the repair that reads it so."""
    lines = message_lines(body)
    if lines:
        yield _LINES, lines
    if _FIELD.match(body):
        # Two ends of lines: the last event of some streams has none.
        events = EventParser(len(body) + 2).feed(body + b"\n\n")
        yield _EVENTS, [event.data for event in events]
    within = _answer_within(body)
    if within is not None:
        yield _BEHIND, [within]


def is_answer(text: bytes) -> bool:
    """Return whether a text is a whole answer of JSON-RPC, and not a request or a notification."""
    within = _answer_within(text)
    return within is not None and within == text.strip()


def _answer_within(body: bytes) -> bytes | None:
    """Return the first answer in a body with other text before or behind it, or None."""
    if opened(body) > _MAX_CONTAINERS:
        return None
    try:
        text = body.decode()
        found = _ANSWER.search(text)
        if found is None:
            return None
        value, end = _SCANNER.raw_decode(text, found.start())
    except (ValueError, RecursionError):
        return None
    answer: dict[str, Any] = value
    # A request in a page is the one that we sent, which an error page shows.
    if "jsonrpc" not in answer or "method" in answer:
        return None
    return text[found.start() : end].encode()
