"""JSON-RPC 2.0 as a server reads and writes it: bytes to messages, and answers to bytes. Pure: no I/O, no state.

Says of what cannot be read why, and whose it was when that can be told. Knows nothing of MCP.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypeVar, cast

import msgspec

from toolweave.protocol.codes import INVALID_REQUEST, PARSE_ERROR
from toolweave.serve.request import Json

__all__ = [
    "MAX_DEPTH",
    "MAX_MESSAGE_BYTES",
    "Broken",
    "Message",
    "RequestId",
    "decode",
    "decoded",
    "encode_batch",
    "encode_error",
    "encode_notification",
    "encode_request",
    "encode_result",
    "encode_value",
    "texts",
    "writable",
]

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""A larger message is refused unread."""
MAX_DEPTH = 200
"""How deeply arrays and objects may lie in each other; what is deeper is refused before anything walks through it."""

V = TypeVar("V")

RequestId: TypeAlias = int | str
"""The id of a request: an integer is no float and no boolean, and 1 is not "1"."""

_BOM = b"\xef\xbb\xbf"
_BRACKETS = re.compile(rb'(?s)"(?:[^"\\]++|\\.)*+"?|[\[\]{}]')  # linear, whatever the text: strings need not end
_NO_JSON = "Parse error: it is not JSON, a number is out of range, or it is nested too deeply"
_TOO_DEEP = f"Invalid request: nested more than {MAX_DEPTH} levels deep"


class Message(msgspec.Struct, gc=False):
    """A request, a notification or an answer; members that are missing are UNSET."""

    jsonrpc: Literal["2.0"]
    id: int | str | msgspec.UnsetType | None = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    result: Any = msgspec.UNSET
    error: Any = msgspec.UNSET

    @property
    def is_answer(self) -> bool:
        """Whether it answers a request instead of asking for something."""
        return self.method is msgspec.UNSET and (self.result is not msgspec.UNSET or self.error is not msgspec.UNSET)


class Broken(ValueError):
    """What came is no message.

    Attributes:
        code: The JSON-RPC error code of the answer.
        message: What is wrong, for the client's developer; nothing of what came is in it.
        id: Whose request it was, where that can be told.
        answerable: False for a broken answer or notification, which nobody waits for.
    """

    def __init__(self, code: int, message: str, *, id: RequestId | None = None, answerable: bool = True) -> None:  # noqa: A002
        super().__init__(message)
        self.code = code
        self.message = message
        self.id = id
        self.answerable = answerable


_message = msgspec.json.Decoder(Message).decode
_value = msgspec.json.Decoder().decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def decode(text: bytes) -> Message | list[Message | Broken]:
    """Return the message of one JSON text, or the members of a batch.

    Raises:
        Broken: It is not JSON (-32700), no message (-32600), or nested more deeply than `MAX_DEPTH`.
    """
    text = text.removeprefix(_BOM)
    try:
        message = _message(text)
    except (ValueError, RecursionError):
        if text.lstrip()[:1] == b"[":
            return _batch(text)
        raise _why(text) from None
    if _is_deep(text):
        key = None if message.id is msgspec.UNSET else message.id
        raise Broken(INVALID_REQUEST, _TOO_DEEP, id=key, answerable=key is not None and not message.is_answer)
    return message


def _batch(text: bytes) -> list[Message | Broken]:
    try:
        items = _items(text)
    except (ValueError, RecursionError):
        raise Broken(PARSE_ERROR, _NO_JSON) from None
    if _is_deep(text):
        raise Broken(INVALID_REQUEST, _TOO_DEEP)
    if not items:
        raise Broken(INVALID_REQUEST, "Invalid request: the batch is empty")
    return [_member(item) for item in items]


def _member(text: msgspec.Raw) -> Message | Broken:
    try:
        return _message(text)
    except (ValueError, RecursionError):
        return _why(bytes(text))


def _why(text: bytes) -> Broken:
    """Return what is wrong with a text that is no message."""
    try:
        value = _value(text)
    except (ValueError, RecursionError):
        return Broken(PARSE_ERROR, _NO_JSON)
    if not isinstance(value, dict):
        return Broken(INVALID_REQUEST, "Invalid request: a message is a JSON object")
    members = cast("Json", value)
    key = members.get("id")
    known = key if isinstance(key, str) or (isinstance(key, int) and not isinstance(key, bool)) else None
    if members.get("jsonrpc") != "2.0":
        why = "'jsonrpc' must be \"2.0\""
    elif "id" in members and known is None:
        why = "'id' must be a string or an integer"
    elif not isinstance(members.get("method"), str):
        why = "'method' must be a string"
    else:
        why = "'params' must be an object"
    silent = "method" not in members and ("result" in members or "error" in members)
    silent = silent or (isinstance(members.get("method"), str) and "id" not in members)
    return Broken(INVALID_REQUEST, f"Invalid request: {why}", id=known, answerable=not silent)


def _is_deep(text: bytes) -> bool:
    """Return whether a JSON text is nested more deeply than allowed; brackets in strings do not count."""
    if text.count(b"{") + text.count(b"[") <= MAX_DEPTH:
        return False
    depth = 0
    for found in _BRACKETS.finditer(text):
        token = found.group()
        if token in b"{[":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif token in b"}]":
            depth -= 1
    return False


def texts(batch: bytes) -> list[bytes]:
    """Return the text of each member of a batch that `decode` has read."""
    return [bytes(item) for item in _items(batch.removeprefix(_BOM))]


def writable(value: V) -> V:
    """Return a JSON value as any encoder can write it, for messages that somebody else encodes.

    Half of a surrogate pair is replaced; a value without any is returned as it is.

    Raises:
        ValueError: It holds what JSON has no word for, such as NaN, or is nested too deeply.
        TypeError: It holds an object that is no JSON value.
    """
    try:
        text = _encode(value)
    except UnicodeEncodeError:
        return _value(_text(value))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if b"null" in text and _has_non_finite(value):
        raise ValueError("a number is not finite")
    return value


def encode_value(value: Any) -> msgspec.Raw:
    """Return a JSON value as its text, for results that are sent many times; encoders put it in as it is.

    Raises:
        ValueError: It holds what JSON has no word for, such as NaN, or is nested too deeply.
        TypeError: It holds an object that is no JSON value.
    """
    text = _text(value)
    if b"null" in text and _has_non_finite(value):
        raise ValueError("a number is not finite")
    return msgspec.Raw(text)


def decoded(result: Json) -> Json:
    """Return a result without encoded members, for encoders that are not ours."""
    if not any(isinstance(member, msgspec.Raw) for member in result.values()):
        return result
    return {name: _value(member) if isinstance(member, msgspec.Raw) else member for name, member in result.items()}


def encode_result(request_id: RequestId, result: Mapping[str, Any]) -> bytes:
    """Return the answer to a request as one JSON text.

    Raises:
        ValueError: The result holds what JSON has no word for, such as NaN, or is nested too deeply.
        TypeError: It holds an object that is no JSON value.
    """
    text = _text({"jsonrpc": "2.0", "id": request_id, "result": result})
    if b"null" in text and _has_non_finite(result):  # msgspec would write null, a silent change
        raise ValueError("a number is not finite")
    return text


def encode_error(request_id: RequestId | None, code: int, message: str, data: Any = None) -> bytes:
    """Return the refusal of a request; `data` that is no JSON is left out."""
    error: Json = {"code": code, "message": message}
    if data is not None:
        try:
            return _text({"jsonrpc": "2.0", "id": request_id, "error": {**error, "data": data}})
        except (TypeError, ValueError):
            pass  # the refusal itself must go out
    return _text({"jsonrpc": "2.0", "id": request_id, "error": error})


def encode_notification(method: str, params: Mapping[str, Any]) -> bytes:
    """Return a notification; empty parameters are left out.

    Raises:
        ValueError: The parameters hold what JSON has no word for.
        TypeError: They hold an object that is no JSON value.
    """
    message: Json = {"jsonrpc": "2.0", "method": method}
    return _text(message | {"params": params} if params else message)


def encode_request(request_id: RequestId, method: str, params: Mapping[str, Any]) -> bytes:
    """Return a request to the client.

    Raises:
        ValueError: The parameters hold what JSON has no word for.
        TypeError: They hold an object that is no JSON value.
    """
    return _text({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def encode_batch(answers: list[bytes]) -> bytes:
    """Return answers as one batch."""
    return b"[" + b",".join(answers) + b"]"


def _text(message: Any) -> bytes:
    try:
        return _encode(message)
    except UnicodeEncodeError:  # half of a surrogate pair, as `os.fsdecode` makes of a strange file name
        text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _has_non_finite(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(map(_has_non_finite, cast("Mapping[Any, Any]", value).values()))
    return isinstance(value, (list, tuple)) and any(map(_has_non_finite, cast("list[Any]", value)))
