"""Ids of server-sent events, which a client sends back to resume a stream."""

from __future__ import annotations

import pytest

from toolweave.protocol.sse import EventParser


@pytest.mark.parametrize("length, last_id", [(4_096, "i" * 4_096), (4_097, "before"), (300_000, "before")])
def test_an_id_that_is_too_long_to_be_sent_back_is_ignored(length: int, last_id: str) -> None:
    parser = EventParser(max_bytes=1_000_000)

    list(parser.feed(b"id: before\ndata: 1\n\n"))
    list(parser.feed(b"id: " + b"i" * length + b"\ndata: 2\n\n"))

    assert parser.last_id == last_id
