"""Messages, streams and header values of strangers, for a fuzzer: only documented errors leave a target."""

from __future__ import annotations

import json

import msgspec

from tests.fuzz.inputs import choice, pieces
from toolweave.protocol import headers, jsonrpc, lenient_messages
from toolweave.protocol.sse import EventParser, ServerSentEvent

MAX_EVENT_BYTES = 100_000


def messages(data: bytes) -> None:
    """JSON-RPC messages, as clients and as servers read them."""
    try:
        lenient_messages.decode_lenient(data)
    except ValueError:
        pass
    lenient_messages.without_deep_entries(data)
    lenient_messages.objects_in(data)
    lenient_messages.answer_behind(data)
    lenient_messages.decode_raw_result(data)
    lenient_messages.answer_id(data)
    try:
        strict = jsonrpc.decode_strict(data)
    except jsonrpc.MalformedMessage:
        return
    try:
        value = json.loads(data)
    except ValueError:  # what is skipped unread may be no UTF-8
        return
    if isinstance(strict, list) or strict.method is msgspec.UNSET:
        return
    assert strict.method == value["method"]


def event_streams(data: bytes) -> None:
    """Server-sent events: the same whole and in pieces."""
    size, body = choice(data, 50)

    def read(parts: list[bytes]) -> list[ServerSentEvent] | None:
        parser, found = EventParser(MAX_EVENT_BYTES), list[ServerSentEvent]()
        try:
            for part in parts:
                found += parser.feed(part)
        except ValueError:
            return None
        return found

    assert read([body]) == read(pieces(body, size + 1))


def header_values(data: bytes) -> None:
    """Header values and ids that callers send."""
    headers.decode_value(data)
    lenient_messages.own_id(data.decode("latin-1"))
