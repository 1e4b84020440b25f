"""A result whose members are left as texts is the result that reading the whole message gives."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.json_strategies import JSON
from toolweave.protocol.jsonrpc import value_of
from toolweave.protocol.lenient_messages import MendedMessage, decode_lenient, decode_raw_result

pytestmark = pytest.mark.slow

FLAWS = [
    "\\ud83d",
    "\\u200b",
    "\u200b",
    "\x01",
    "\x7f",
    "\\q",
    "\\",
    '"',
    "NaN",
    "1e999",
    "9" * 400,
    "[",
    "]",
    "{",
    ",",
    " ",
    "\n",
]
KEYS = st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5) | st.none() | st.floats()
MEMBERS = st.dictionaries(st.sampled_from(["content", "isError", "_meta", "resultType", ""]), JSON, max_size=3)


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """Draw an answer as a server may write it, with or without a flaw."""
    parts: dict[str, Any] = {"jsonrpc": "2.0", "id": draw(KEYS), "result": draw(MEMBERS | JSON)}
    if draw(st.booleans()):
        parts[draw(st.sampled_from(["method", "error", "params"]))] = draw(JSON)
    names = draw(st.permutations(list(parts)))
    written = json.dumps({name: parts[name] for name in names}, ensure_ascii=draw(st.booleans()))
    at = draw(st.integers(0, len(written)))
    flaw = draw(st.sampled_from(["", "", *FLAWS]))
    return (written[:at] + flaw + written[at:]).encode("utf-8", "replace")


@given(texts())
@example(b'{"id":1,"result":{"a":"\\q"}}')
@example(b'{"id":1,"result":{"a":"\x01"}}')
@example(b'{"id":1,"result":{"a":1,"a":2}}')
@example(b'{"id":1,"result":{},"result":{"b":[]}}')
@example(b'{"id":true,"result":{}}')
@example(b'{"id":1,"result":{"a":01}}')
def test_an_undecoded_result_has_the_values_of_the_message(text: bytes) -> None:
    raw = decode_raw_result(text)
    if raw is None:
        return

    [message] = decode_lenient(text)
    assert type(message) is not MendedMessage
    assert (message.id, message.result) == (raw.id, {name: value_of(value) for name, value in raw.result.items()})
    assert all(json.loads(bytes(value), strict=True) == value_of(value) for value in raw.result.values())
