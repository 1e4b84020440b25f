"""JSON-RPC 2.0 messages to and from bytes. Pure: no I/O, no state.

Texts are read in two ways. A client reads the messages of a server **leniently**, see `lenient_messages`. A server
reads those of a client **strictly**: a text that is not a message, or is nested too deeply, is refused before any code
walks through it, with the reason and, if possible, the id of the request. The depth limit is a parameter of both. Texts
are written in one way; the caller chooses the handling of text and numbers that JSON cannot hold.
"""

from __future__ import annotations

import json
import math
from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypeVar, cast

import msgspec

from toolweave._json import JsonDecoder
from toolweave._json_types import Json, JsonObject, as_integer, as_object, as_text
from toolweave.protocol.brackets import is_deeper
from toolweave.protocol.codes import INVALID_REQUEST, PARSE_ERROR
from toolweave.protocol.lenient_json import mended

__all__ = [
    "MAX_BATCH",
    "MAX_DEPTH",
    "REQUEST_HEAD",
    "VERSION_MEMBER",
    "ForeignId",
    "MalformedMessage",
    "RequestId",
    "StrictMessage",
    "decode_strict",
    "decoded",
    "encode_batch",
    "encode_error",
    "encode_notification",
    "encode_request",
    "encode_result",
    "encode_value",
    "value_of",
    "writable",
]

MAX_DEPTH = 200
"""The limit of nesting of arrays and objects: in a message to a server, in an entry of a server's list."""
REQUEST_HEAD = b'{"jsonrpc":"2.0","id":'
"""The beginning of an encoded request, up to its id."""
VERSION_MEMBER = b'"jsonrpc"'
"""The name of a member that every message has, by which it is found in other text."""
MAX_BATCH = 1_000
"""The limit of messages in a batch: each costs as much as a short message by itself."""

RequestId: TypeAlias = int | str
"""The id of a request: a text or an integer, which is neither a float nor a boolean. 1 is not "1"."""
ForeignId: TypeAlias = int | str | float
"""An id as lenient reading accepts it; only servers send fractions, which they get back unchanged."""

ValueT = TypeVar("ValueT")

_NO_JSON = "Parse error: it is not JSON, a number is out of range, or it is nested too deeply"


class StrictMessage(msgspec.Struct, gc=False):
    """A request, a notification or an answer as a client must send it; members that are missing are UNSET."""

    jsonrpc: Literal["2.0"]
    id: RequestId | msgspec.UnsetType | None = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: Json | msgspec.UnsetType | None = msgspec.UNSET
    result: Any = msgspec.UNSET
    error: Any = msgspec.UNSET

    @property
    def is_answer(self) -> bool:
        """Whether it is an answer to a request."""
        if self.method is not msgspec.UNSET:
            return False
        return self.result is not msgspec.UNSET or self.error is not msgspec.UNSET


class MalformedMessage(ValueError):
    """Raised by strict reading for a text that is not a message.

    Attributes:
        code: The JSON-RPC error code of the answer.
        message: The fault, for the client's developer, without any of the text received.
        id: The id of the request, if it could be read.
        answerable: False for a malformed answer or notification, which gets no answer.
    """

    def __init__(self, code: int, message: str, *, id: RequestId | None = None, answerable: bool = True) -> None:  # noqa: A002
        super().__init__(message)
        self.code = code
        self.message = message
        self.id = id
        self.answerable = answerable


_encode = msgspec.json.Encoder().encode
_decode_strict = JsonDecoder(StrictMessage)
_decode_members = JsonDecoder(list[msgspec.Raw])
_decode_any: JsonDecoder[Any] = JsonDecoder()
_skip = JsonDecoder(msgspec.Raw)


# Reading


def value_of(raw: msgspec.Raw) -> Any:
    """Return a raw member as a JSON value.

    Raises:
        ValueError: It is not valid JSON, not valid UTF-8, or nested too deeply.
    """
    try:
        return _decode_any(raw)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        readable = mended(bytes(raw))
        if readable is None:
            raise
    return _decode_any(readable)


def decode_strict(text: bytes, *, levels: int = MAX_DEPTH) -> StrictMessage | list[StrictMessage | MalformedMessage]:
    """Return the message of one JSON text, or the members of a batch.

    Raises:
        MalformedMessage: The text is not JSON (-32700), is not a message (-32600), or is nested more deeply than
            `levels`. An answer may be nearly JSON.
    """
    text = text.removeprefix(BOM_UTF8)
    try:
        message = _decode_strict(text)
    except (ValueError, RecursionError):
        if text.lstrip()[:1] == b"[":
            return _strict_batch(text, levels)
        message = _mended_answer(text)
        if message is None:
            raise _defect(text) from None
    if is_deeper(text, levels):
        key = None if message.id is msgspec.UNSET else message.id
        is_request = key is not None and not message.is_answer
        raise _too_deep(levels, key, answerable=is_request)
    return message


def _strict_batch(text: bytes, levels: int) -> list[StrictMessage | MalformedMessage]:
    try:
        items = _decode_members(text)
    except (ValueError, RecursionError):
        raise MalformedMessage(PARSE_ERROR, _NO_JSON) from None
    if not items:
        raise MalformedMessage(INVALID_REQUEST, "Invalid request: the batch is empty")
    if len(items) > MAX_BATCH:
        raise MalformedMessage(INVALID_REQUEST, f"Invalid request: a batch has at most {MAX_BATCH:,} messages")
    if is_deeper(text, levels):
        raise _too_deep(levels)
    return list(map(_strict_member, items))


def _strict_member(text: msgspec.Raw) -> StrictMessage | MalformedMessage:
    try:
        return _decode_strict(text)
    except (ValueError, RecursionError):
        return _mended_answer(bytes(text)) or _defect(bytes(text))


def _mended_answer(text: bytes) -> StrictMessage | None:
    """Return the answer in a text that is nearly JSON, or None.

    A request that is nearly JSON is refused, and its sender can send it as JSON. The sender of an answer has no request
    left to answer: refused, it would leave the one who asked waiting.
    """
    readable = mended(text)
    if readable is None:
        return None
    try:
        message = _decode_strict(readable)
    except (ValueError, RecursionError):
        return None
    if message.is_answer:
        return message
    return None


def _too_deep(levels: int, key: RequestId | None = None, *, answerable: bool = True) -> MalformedMessage:
    why = f"Invalid request: nested more than {levels} levels deep"
    return MalformedMessage(INVALID_REQUEST, why, id=key, answerable=answerable)


def _defect(text: bytes) -> MalformedMessage:
    """Return the error for a text that is not a message."""
    try:
        # Refuses a text that is not JSON without converting its numbers a second time.
        _skip(text)
        value = _decode_any(text)
    except (ValueError, RecursionError):
        return MalformedMessage(PARSE_ERROR, _NO_JSON)
    members = as_object(value)
    if members is None:
        return MalformedMessage(INVALID_REQUEST, "Invalid request: a message is a JSON object")
    known = as_text(members.get("id"))
    if known is None:
        known = as_integer(members.get("id"))
    if members.get("jsonrpc") != "2.0":
        why = "'jsonrpc' must be \"2.0\""
    elif "id" in members and known is None:
        why = "'id' must be a string or an integer"
    elif not isinstance(members.get("method"), str):
        why = "'method' must be a string"
    else:
        why = "'params' must be an object"
    if "method" not in members:
        answerable = members.keys().isdisjoint(("result", "error"))
    else:
        is_notification = isinstance(members["method"], str) and "id" not in members
        answerable = not is_notification
    return MalformedMessage(INVALID_REQUEST, f"Invalid request: {why}", id=known, answerable=answerable)


# Writing


def encode_value(value: Any, *, errors: Literal["strict", "replace"] = "strict", allow_nan: bool = False) -> bytes:
    """Return a JSON value as its text.

    Args:
        value: Any JSON value; members that are `msgspec.Raw` are put in as they are.
        errors: `"replace"` writes a question mark for half of a surrogate pair, as `os.fsdecode` makes of a file name
            that is not UTF-8; `"strict"` refuses it.
        allow_nan: Write null for a number that is not finite, for which JSON has no word, instead of refusing it.

    Raises:
        ValueError: The value cannot be expressed in JSON, or is nested too deeply.
        TypeError: It holds an object that is not a JSON value.
    """
    try:
        text = _encode(value)
    except UnicodeEncodeError:
        if errors == "strict":
            raise
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    # msgspec writes null for NaN, a silent change. `in` costs twice as much as `find`: it first asks for a number
    if not allow_nan and text.find(b"null") >= 0 and _has_non_finite(value):
        raise ValueError("a number is not finite")
    return text


def _has_non_finite(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(map(_has_non_finite, cast("Mapping[Any, Any]", value).values()))
    if isinstance(value, (list, tuple)):
        return any(map(_has_non_finite, cast("list[Any]", value)))
    return False


def encode_request(
    request_id: RequestId, method: str, params: JsonObject, *, errors: Literal["strict", "replace"] = "strict"
) -> bytes:
    """Return a request as one JSON text; raises the errors of `encode_value`."""
    return encode_value({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}, errors=errors)


def encode_notification(method: str, params: JsonObject) -> bytes:
    """Return a notification as one JSON text; empty parameters are left out, numbers that are not finite are null.

    Raises:
        ValueError: The parameters are nested too deeply.
        TypeError: They hold an object that is not a JSON value.
    """
    message: Json = {"jsonrpc": "2.0", "method": method}
    return encode_value(message | {"params": params} if params else message, errors="replace", allow_nan=True)


def encode_result(request_id: ForeignId, result: JsonObject) -> bytes:
    """Return the answer to a request as one JSON text.

    Raises:
        ValueError: The result holds a value that JSON cannot express, such as NaN, or is nested too deeply.
        TypeError: It holds an object that is not a JSON value.
    """
    return encode_value({"jsonrpc": "2.0", "id": request_id, "result": result}, errors="replace")


def encode_error(request_id: ForeignId | None, code: int, message: str, data: Any = None) -> bytes:
    """Return the refusal of a request; `data` that is not JSON is left out."""
    error: Json = {"code": code, "message": message}
    refusal = {"jsonrpc": "2.0", "id": request_id, "error": error}
    if data is not None:
        try:
            return encode_value(refusal | {"error": error | {"data": data}}, errors="replace", allow_nan=True)
        except (TypeError, ValueError):
            # The refusal itself must go out.
            pass
    return encode_value(refusal, errors="replace")


def encode_batch(answers: list[bytes]) -> bytes:
    """Return answers as one batch."""
    return b"[" + b",".join(answers) + b"]"


def writable(value: ValueT) -> ValueT:
    """Return a JSON value in plain types that any encoder can write, for messages encoded elsewhere.

    Half of a surrogate pair is replaced; a value without any is returned unchanged.

    Raises:
        ValueError: The value holds a part that JSON cannot express, such as NaN, or is nested too deeply.
        TypeError: It holds an object that is not a JSON value.
    """
    try:
        encode_value(value)
    except UnicodeEncodeError:
        return _decode_any(encode_value(value, errors="replace"))
    return value


def decoded(result: Json) -> Json:
    """Return a result without raw members, for encoders that are not ours."""
    if not any(isinstance(member, msgspec.Raw) for member in result.values()):
        return result
    return {name: value_of(member) if isinstance(member, msgspec.Raw) else member for name, member in result.items()}
