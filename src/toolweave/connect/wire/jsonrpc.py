"""JSON-RPC 2.0 messages to and from bytes. Pure: no I/O, no state.

An answer is read in one pass. Where its result cannot be read, the envelope still is, so that the call it
belongs to can be answered for; parameters and errors are left raw until somebody wants them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

__all__ = [
    "BOM",
    "MAX_CONTAINERS",
    "Message",
    "RequestId",
    "answer_behind",
    "answer_id",
    "decode",
    "decode_plain",
    "depth_change",
    "encode_error",
    "encode_notification",
    "encode_request",
    "encode_result",
    "encode_value",
    "objects_in",
    "own_id",
    "payload",
]

BOM = b"\xef\xbb\xbf"
"""The mark that some servers put before UTF-8 text; no part of JSON, and passed over (RFC 8259, 8.1)."""

MAX_CONTAINERS = 2_000_000
"""Arrays and objects in one message: reading them is one step of the event loop, however many there are."""

_encode = msgspec.json.Encoder().encode
_LEADING_ID = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(?:(\d{1,18})|"([\x20-\x21\x23-\x7e]{1,80})")\s*,'
)
# A string matches to its end or to that of the text: one that never ends must not be read again from each quote in it.
_BRACKETS = re.compile(rb'(?s)"(?:[^"\\]++|\\.)*+"?|[\[\]{}]')
_BEGIN_OF_OBJECT = re.compile(rb'\{\s*+"')
_MAX_DIGITS = 19
_ENTRY_DEPTH = 4  # of `{"result": {"tools": [{`
_LARGE = 2 * MAX_CONTAINERS  # bytes; an array or an object has two brackets, so a smaller message holds fewer of them
_SPARSE = 10_000  # brackets of one kind that are looked for one by one, which is quick where there are few
_MOST_TOKENS = 1_000_000  # brackets and quotes of a list that is searched for deep entries; about half a second


RequestId = int | str | float
"""An id as JSON-RPC has it; fractions are of servers only, which get them back as they came."""


class Message(msgspec.Struct, gc=False):
    """One message as it came: a request, a notification or an answer; members that are missing are UNSET.

    `result` is read in the same pass as the envelope, so that a large answer is gone over once; it is left
    raw where it cannot be read.
    """

    id: RequestId | msgspec.UnsetType | None = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: Any = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Request(msgspec.Struct, tag_field="jsonrpc", tag="2.0", gc=False):
    id: int | str
    method: str
    params: Mapping[str, Any]


class _Envelope(msgspec.Struct, gc=False):
    id: RequestId | msgspec.UnsetType | None = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decode_whole = msgspec.json.Decoder(Message).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_batch = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_any = msgspec.json.Decoder().decode


def decode_plain(text: bytes) -> Message | None:
    """Return the one message of a text as nearly every one is; None where `decode` has to say what it is."""
    if len(text) > _LARGE:
        return None
    try:
        return _decode_whole(text)
    except (ValueError, RecursionError):  # text that is no UTF-8 is no `DecodeError`
        return None


def decode(text: bytes) -> list[Message]:
    """Return the messages of one JSON text: one, or those of a batch (revision 2025-03-26).

    Raises:
        ValueError: It is no JSON-RPC message; in a batch only if none is. Or it holds more than `MAX_CONTAINERS`.
    """
    if len(text) > _LARGE and _count(text, b"[") + _count(text, b"{") > MAX_CONTAINERS:
        raise ValueError(f"it holds more than {MAX_CONTAINERS} arrays and objects")
    if text[:1] != b"[":
        try:
            return [_decode_whole(text)]
        except (msgspec.DecodeError, RecursionError):
            return [_decode_one(text)]
    messages: list[Message] = []
    for item in _decode_batch(text):
        try:
            messages.append(_decode_one(item))
        except msgspec.DecodeError:
            continue
    if not messages:
        raise ValueError("a batch without a message")
    return messages


def _count(text: bytes, bracket: bytes) -> int:
    """Return how often a bracket is in a text; a tenth of the time of `count` where most of it is one long string."""
    at = -1
    for number in range(_SPARSE):
        at = text.find(bracket, at + 1)
        if at < 0:
            return number
    return _SPARSE + text.count(bracket, at + 1)


def _decode_one(text: bytes | msgspec.Raw) -> Message:
    try:
        return _decode_whole(text)
    except (msgspec.DecodeError, RecursionError):  # if only the result is broken, its call can still be answered for
        envelope = _decode_envelope(text)
    return Message(
        id=envelope.id, method=envelope.method, params=envelope.params, result=envelope.result, error=envelope.error
    )


def payload(raw: msgspec.Raw) -> Any:
    """Return a raw member as a JSON value.

    Raises:
        ValueError: It is not valid JSON, not valid UTF-8, or nested too deeply.
    """
    try:
        return _decode_any(raw)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def without_deep_entries(text: bytes, *, levels: int = 200) -> bytes:
    """Return the answer to a list request with null in place of each entry nested deeper than `levels`.

    One such entry would make the whole list unreadable; the nulls are reported as entries that are no object.
    A text with more than a million brackets and quotes comes back as it is.
    """
    if sum(map(text.count, (b"{", b"}", b"[", b"]", b'"'))) > _MOST_TOKENS:
        return text
    kept: list[bytes] = []
    copied = depth = deepest = start = 0
    for found in _BRACKETS.finditer(text):
        token = found.group()
        if token in b"{[":
            depth += 1
            deepest = max(deepest, depth)
            if depth == _ENTRY_DEPTH:
                start, deepest = found.start(), depth
        elif token in b"}]":
            if depth == _ENTRY_DEPTH and deepest > levels:
                kept += (text[copied:start], b"null")
                copied = found.end()
            depth -= 1
    return b"".join((*kept, text[copied:]))


def answer_id(text: bytes) -> int | str | None:
    """Return the id at the head of an answer that cannot be read as a whole, or None."""
    found = _LEADING_ID.match(text)
    if found is None:
        return None
    number, name = found.groups()
    return int(number) if number else name.decode("ascii")


def objects_in(text: bytes) -> list[bytes]:
    """Return the JSON objects of a text that holds nothing else, one behind the other; of any other the text itself.

    A text with more than a million brackets and quotes comes back as it is.
    """
    if sum(map(text.count, (b"{", b"}", b"[", b"]", b'"'))) > _MOST_TOKENS:
        return [text]
    parts: list[bytes] = []
    start = depth = 0
    for found in _BRACKETS.finditer(text):
        token = found.group()
        if depth == 0 and (token != b"{" or text[start : found.start()].strip()):
            return [text]
        if len(token) == 1 and token in b"{[":
            depth += 1
        elif len(token) == 1 and token in b"}]":
            depth -= 1
            if depth == 0:
                parts.append(text[start : found.end()].strip())
                start = found.end()
    return [text] if text[start:].strip() or not parts else parts


def depth_change(text: bytes) -> int:
    """Return by how many arrays and objects a part of a JSON text is deeper at its end than at its beginning."""
    return sum((token in b"{[") - (token in b"}]") for token in _BRACKETS.findall(text) if len(token) == 1)


def answer_behind(text: bytes) -> Message | None:
    """Return the one answer with which a line ends that begins otherwise, as after the head of a log record, or None.

    Never a request or a notification: what a server logs is not what it sends.
    """
    found = _BEGIN_OF_OBJECT.search(text)
    if found is None:
        return None
    try:
        [message] = decode(text[found.start() :])
    except (ValueError, RecursionError):
        return None
    is_answer = message.result is not msgspec.UNSET or message.error is not msgspec.UNSET
    return message if is_answer and message.method is msgspec.UNSET else None


def own_id(came: object) -> int | str | None:
    """Return the id of a request of ours that the id of an answer stands for; None where it stands for none.

    Some servers write numbers as strings, others as fractions (`4.0`); leading zeros, other digits or signs make
    another id of it.
    """
    if isinstance(came, str):
        return int(came) if came.isascii() and came.isdigit() and len(came) < _MAX_DIGITS and _is_plain(came) else came
    if isinstance(came, float):
        return int(came) if came.is_integer() else None
    return came if isinstance(came, int) and not isinstance(came, bool) else None


def _is_plain(digits: str) -> bool:
    return digits == "0" or digits[0] != "0"


def encode_request(request_id: int | str, method: str, params: Mapping[str, Any]) -> bytes:
    """Return a request as one JSON text.

    Raises:
        ValueError: The parameters hold what JSON has no word for, such as NaN.
        TypeError: They hold an object that is no JSON value.
    """
    return _finite(_encode(_Request(request_id, method, params)), params)


def encode_value(value: Any) -> bytes:
    """Return a value of a request's parameters as JSON; raises what `encode_request` raises."""
    return _finite(_encode(value), value)


def _finite(text: bytes, value: Any) -> bytes:
    # `in` would cost twice as much: it asks first whether it was given a number
    if text.find(b"null") >= 0 and _has_non_finite(value):  # what msgspec makes of NaN would be a silent change
        raise ValueError("a number is not finite")
    return text


def _has_non_finite(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(map(_has_non_finite, cast("Mapping[Any, Any]", value).values()))
    return isinstance(value, (list, tuple)) and any(map(_has_non_finite, cast("list[Any]", value)))


def encode_notification(method: str, params: Mapping[str, Any]) -> bytes:
    """Return a notification as one JSON text; empty parameters are left out."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params:
        message["params"] = params
    return _encode(message)


def encode_result(request_id: RequestId, result: Mapping[str, Any]) -> bytes:
    """Return the answer to a request of the server."""
    return _encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def encode_error(request_id: RequestId | None, code: int, message: str) -> bytes:
    """Return the refusal of a request of the server."""
    return _encode({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})
