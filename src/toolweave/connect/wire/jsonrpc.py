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
    "Message",
    "answer_id",
    "decode",
    "encode_error",
    "encode_notification",
    "encode_request",
    "encode_result",
    "payload",
]

BOM = b"\xef\xbb\xbf"
"""The mark that some servers put before UTF-8 text; no part of JSON, and passed over (RFC 8259, 8.1)."""

_encode = msgspec.json.Encoder().encode
_LEADING_ID = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(?:(\d{1,18})|"([\x20-\x21\x23-\x7e]{1,80})")\s*,'
)
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_ENTRY_DEPTH = 4  # of `{"result": {"tools": [{`


class Message(msgspec.Struct, gc=False):
    """One message as it came: a request, a notification or an answer; members that are missing are UNSET.

    `result` is read in the same pass as the envelope, so that a large answer is gone over once; it is left
    raw where it cannot be read.
    """

    id: int | str | msgspec.UnsetType | None = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: Any = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Envelope(msgspec.Struct, gc=False):
    id: int | str | msgspec.UnsetType | None = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decode_whole = msgspec.json.Decoder(Message).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_batch = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_any = msgspec.json.Decoder().decode


def decode(text: bytes) -> list[Message]:
    """Return the messages of one JSON text: one, or those of a batch (revision 2025-03-26).

    Raises:
        ValueError: It is no JSON-RPC message; in a batch only if none is.
    """
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
    """
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


def encode_request(request_id: int | str, method: str, params: Mapping[str, Any]) -> bytes:
    """Return a request as one JSON text.

    Raises:
        ValueError: The parameters hold what JSON has no word for, such as NaN.
        TypeError: They hold an object that is no JSON value.
    """
    text = _encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
    if b"null" in text and _has_non_finite(params):  # what msgspec makes of NaN would be a silent change
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


def encode_result(request_id: int | str, result: Mapping[str, Any]) -> bytes:
    """Return the answer to a request of the server."""
    return _encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def encode_error(request_id: int | str | None, code: int, message: str) -> bytes:
    """Return the refusal of a request of the server."""
    return _encode({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})
