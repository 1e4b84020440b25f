"""JSON-RPC 2.0 messages to and from bytes. Pure: no I/O, no state.

Texts are read in two ways. A client reads **leniently** what a server sent: junk is skipped, an answer that cannot
be read as a whole is still found by its id, and list entries that are nested too deeply become null, so that one bad
message fails one call and never the conversation. A server reads **strictly** what a client sent: a text that is no
message, or is nested too deeply, is refused before any code walks through it, with the reason and, if possible, the
id of the request. The depth limit is a parameter of both. Texts are written in one way; the caller chooses the
handling of text and numbers that JSON cannot hold.
"""

from __future__ import annotations

import json
import math
import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypeVar, cast

import msgspec

from toolweave._json import JsonDecoder, is_out_of_range
from toolweave.protocol.brackets import has_more_brackets, is_deeper
from toolweave.protocol.codes import INVALID_REQUEST, PARSE_ERROR
from toolweave.protocol.lenient_json import mended

__all__ = [
    "MAX_BATCH",
    "MAX_CONTAINERS",
    "MAX_DEPTH",
    "MAX_DIGITS",
    "REQUEST_HEAD",
    "VERSION_MEMBER",
    "ForeignId",
    "LenientMessage",
    "MalformedMessage",
    "MendedMessage",
    "RawResult",
    "RequestId",
    "StrictMessage",
    "answer_behind",
    "answer_id",
    "decode_lenient",
    "decode_raw_result",
    "decode_strict",
    "decoded",
    "encode_batch",
    "encode_error",
    "encode_notification",
    "encode_request",
    "encode_result",
    "encode_value",
    "has_leading_method",
    "is_json",
    "objects_in",
    "own_id",
    "value_of",
    "without_deep_entries",
    "writable",
]

MAX_DEPTH = 200
"""The limit of nesting of arrays and objects: in a message to a server, in an entry of a server's list."""
REQUEST_HEAD = b'{"jsonrpc":"2.0","id":'
"""The beginning of an encoded request, up to its id."""
VERSION_MEMBER = b'"jsonrpc"'
"""The name of a member that every message has, by which it is found in other text."""
MAX_BATCH = 1_000
"""The limit of messages in a batch: each costs as much as a short message of its own."""
MAX_CONTAINERS = 2_000_000
"""Arrays and objects in one message to a client: reading them is one step of the event loop, however many there are."""

RequestId: TypeAlias = int | str
"""The id of a request: an integer is no float and no boolean, and 1 is not "1"."""
ForeignId: TypeAlias = int | str | float
"""An id as lenient reading accepts it; only servers send fractions, which they get back unchanged."""

ValueT = TypeVar("ValueT")

# A string matches to its end or to that of the text: one that never ends must not be read again from each quote in it.
_BRACKETS = rb'(?s)"(?:[^"\\]++|\\.)*+"?|[\[\]{}]'
_BEGIN_OF_OBJECT = rb'\{\s*+"'
_LEADING = rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
_LEADING_ID = _LEADING + rb'"id"\s*:\s*(?:(\d+)|"([\x20-\x21\x23-\x7e]{1,80})")\s*,'
_LEADING_METHOD = re.compile(_LEADING + rb'"method"\s*:')
MAX_DIGITS = 19
"""Digits of a number that is no id of ours."""
_SHOWN_DIGITS = 40
_ENTRY_DEPTH = 4  # of `{"result": {"tools": [{`
_LARGE = 2 * MAX_CONTAINERS  # bytes; an array or an object has two brackets, so a smaller message holds fewer of them
_MOST_TOKENS = 1_000_000  # brackets and quotes of a list that is searched for deep entries; about half a second
_HIDING = (b"\\u", b"\\b", b"\\f")
"""Escapes behind which there may be a hidden character."""
_NO_JSON = "Parse error: it is not JSON, a number is out of range, or it is nested too deeply"


class LenientMessage(msgspec.Struct, gc=False):
    """One message as a server sent it: a request, a notification or an answer; members that are missing are UNSET.

    `result` is read in the same pass as the envelope, so that a large answer is gone over once; it is left raw where
    it cannot be read. Parameters and errors are left raw until they are used.

    Attributes:
        id: Of any type, since typed fractions are read slowly and a text can repeat a member; `_lenient` refuses all
            that is not a `ForeignId`, null or missing.
    """

    id: Any = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: Any = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class MendedMessage(LenientMessage, gc=False):
    """A message from a text that was nearly JSON; see `lenient_json`."""


class _Envelope(msgspec.Struct, gc=False):
    """A message whose result cannot be read."""

    id: Any = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class RawResult(msgspec.Struct, gc=False):
    """An answer with a result whose members are left as the JSON texts that came."""

    id: int
    result: dict[str, msgspec.Raw]
    method: msgspec.UnsetType | None = msgspec.UNSET
    error: msgspec.UnsetType | None = msgspec.UNSET


class StrictMessage(msgspec.Struct, gc=False):
    """A request, a notification or an answer as a client must send it; members that are missing are UNSET."""

    jsonrpc: Literal["2.0"]
    id: RequestId | msgspec.UnsetType | None = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    result: Any = msgspec.UNSET
    error: Any = msgspec.UNSET

    @property
    def is_answer(self) -> bool:
        """Whether it is an answer to a request."""
        return self.method is msgspec.UNSET and (self.result is not msgspec.UNSET or self.error is not msgspec.UNSET)


class MalformedMessage(ValueError):
    """Raised by strict reading for a text that is no message.

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
_decode_lenient = JsonDecoder(LenientMessage)
_decode_mended = JsonDecoder(MendedMessage)
_decode_raw_result = JsonDecoder(RawResult)
_decode_envelope = JsonDecoder(_Envelope)
_decode_strict = JsonDecoder(StrictMessage)
_decode_members = JsonDecoder(list[msgspec.Raw])
_decode_any: JsonDecoder[Any] = JsonDecoder()
_skip = JsonDecoder(msgspec.Raw)
_ID_TYPES = frozenset({int, str, float, type(None), msgspec.UnsetType})


# Reading leniently


def decode_raw_result(text: bytes) -> RawResult | None:
    """Return the result in a text with its members undecoded; None for a text that has to be read by `decode_lenient`.

    What is returned is what `decode_lenient` would return, member by member (`tests/protocol/test_raw_results.py`).
    """
    # A larger text may hold more arrays and objects than a message may have; only `decode_lenient` counts them.
    if len(text) > _LARGE or _may_hide_characters(text):
        return None
    try:
        answer = _decode_raw_result(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if answer.method is not msgspec.UNSET or answer.error is not msgspec.UNSET:
        return None
    # A number that cannot be read makes the answer invalid on every path, so it must not pass unread on this one.
    if is_out_of_range(text):
        return None
    return answer


def _may_hide_characters(text: bytes) -> bool:
    """Return whether a text may hold hidden characters, which the scan of results looks for in values.

    Visible are ASCII characters, and escapes of quotes, slashes and white space.
    """
    # `find` costs half of `in`, which first asks for a number.
    if not text.isascii() or text.find(b"\x7f") >= 0:
        return True
    return text.find(b"\\") >= 0 and any(text.find(escape) >= 0 for escape in _HIDING)


def decode_lenient(text: bytes) -> list[LenientMessage]:
    """Return the messages of one JSON text: one, or those of a batch (revision 2025-03-26).

    Raises:
        ValueError: It is no JSON-RPC message; in a batch only if none is. Or it holds more than `MAX_CONTAINERS`, or
            a batch more than `MAX_BATCH`.
        RecursionError: It is nested more deeply than can be read; see `without_deep_entries`.
    """
    if len(text) > _LARGE and has_more_brackets(text, MAX_CONTAINERS):
        raise ValueError(f"it holds more than {MAX_CONTAINERS} arrays and objects")
    if text[:1] == b"[":
        return _lenient_batch(text)
    return [_lenient(text)]


def _lenient_batch(text: bytes) -> list[LenientMessage]:
    messages: list[LenientMessage] = []
    try:
        items = _decode_members(text)
    except ValueError:
        readable = mended(text)
        if readable is None:
            raise
        items = _decode_members(readable)
    if len(items) > MAX_BATCH:
        raise ValueError(f"it is a batch of more than {MAX_BATCH:,} messages")
    for item in items:
        try:
            messages.append(_lenient(item))
        except msgspec.DecodeError:
            continue
    if not messages:
        raise ValueError("a batch without a message")
    return messages


def _lenient(text: bytes | msgspec.Raw) -> LenientMessage:
    try:
        message = _decode_lenient(text)
    except RecursionError:
        message = _without_result(text)
    except ValueError:  # text that is not UTF-8 is no `DecodeError`
        readable = mended(bytes(text))
        if readable is None:
            message = _without_result(text)
        else:
            message = _decode_mended(readable)
    if type(message.id) not in _ID_TYPES:
        raise msgspec.ValidationError("'id' is not a number, a string or null")
    return message


def _without_result(text: bytes | msgspec.Raw) -> LenientMessage:
    """Return a message with its result left raw: if only that is broken, its call can still be answered for."""
    envelope = _decode_envelope(text)
    return LenientMessage(
        id=envelope.id, method=envelope.method, params=envelope.params, result=envelope.result, error=envelope.error
    )


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


def is_json(text: bytes) -> bool:
    """Whether a text is JSON; of one that is nested too deeply, as far as it can be read."""
    try:
        _skip(text)
    except msgspec.DecodeError:
        return False
    except RecursionError:
        pass
    return True


def without_deep_entries(text: bytes, *, levels: int = MAX_DEPTH) -> bytes:
    """Return the answer to a list request with null instead of each entry nested deeper than `levels`.

    One such entry would make the whole list unreadable; the nulls are reported as entries that are no object.
    A text with more than a million brackets and quotes is returned unchanged.
    """
    if _holds_too_many_tokens(text):
        return text
    kept: list[bytes] = []
    copied = depth = deepest = start = 0
    for found in re.finditer(_BRACKETS, text):
        token = found.group()
        if token in b"{[":
            depth += 1
            deepest = max(deepest, depth)
            if depth == _ENTRY_DEPTH:
                start = found.start()
                deepest = depth
        elif token in b"}]":
            if depth == _ENTRY_DEPTH and deepest > levels:
                kept += (text[copied:start], b"null")
                copied = found.end()
            depth -= 1
    return b"".join((*kept, text[copied:]))


def has_leading_method(text: bytes) -> bool:
    """Return whether a message begins with its method, as a request or a notification does; it is not read."""
    return _LEADING_METHOD.match(text) is not None


def answer_id(text: bytes) -> RequestId | None:
    """Return the id at the head of an answer that cannot be read as a whole, or None.

    A number of more digits than any id of ours is returned as the text of its first digits.
    """
    found = re.match(_LEADING_ID, text)
    if found is None:
        return None
    number, name = found.groups()
    if number:
        if len(number) < MAX_DIGITS:
            return int(number)
        return number[:_SHOWN_DIGITS].decode("ascii")
    return name.decode("ascii")


def objects_in(text: bytes) -> list[bytes]:
    """Return the JSON objects of a text that is nothing but consecutive objects; of any other text the text itself.

    A text with more than a million brackets and quotes is returned unchanged.
    """
    if _holds_too_many_tokens(text):
        return [text]
    parts: list[bytes] = []
    start = depth = 0
    for found in re.finditer(_BRACKETS, text):
        token = found.group()
        if depth == 0 and (token != b"{" or text[start : found.start()].strip()):
            return [text]
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
            if depth == 0:
                parts.append(text[start : found.end()].strip())
                start = found.end()
    if text[start:].strip() or not parts:
        return [text]
    return parts


def _holds_too_many_tokens(text: bytes) -> bool:
    return sum(map(text.count, (b"{", b"}", b"[", b"]", b'"'))) > _MOST_TOKENS


def answer_behind(text: bytes) -> LenientMessage | None:
    """Return the answer at the end of a line that begins with other text, such as the head of a log record, or None.

    Never a request or a notification: a message that a server logs was not sent.
    """
    found = re.search(_BEGIN_OF_OBJECT, text)
    if found is None:
        return None
    try:
        [message] = decode_lenient(text[found.start() :])
    except (ValueError, RecursionError):
        return None
    is_answer = message.result is not msgspec.UNSET or message.error is not msgspec.UNSET
    if is_answer and message.method is msgspec.UNSET:
        return message
    return None


def own_id(came: object) -> RequestId | None:
    """Return the id of our request that an answer's id means; None where it cannot be one.

    Some servers write numbers as strings, others as fractions (`4.0`); leading zeros, other digits or signs make
    another id of it.
    """
    if isinstance(came, str):
        if came.isascii() and came.isdigit() and len(came) < MAX_DIGITS and _is_plain(came):
            return int(came)
        return came
    if isinstance(came, float):
        if came.is_integer():
            return int(came)
        return None
    if isinstance(came, int) and not isinstance(came, bool):
        return came
    return None


def _is_plain(digits: str) -> bool:
    return digits == "0" or digits[0] != "0"


# Reading strictly


def decode_strict(text: bytes, *, levels: int = MAX_DEPTH) -> StrictMessage | list[StrictMessage | MalformedMessage]:
    """Return the message of one JSON text, or the members of a batch.

    Raises:
        MalformedMessage: It is not JSON (-32700), no message (-32600), or nested more deeply than `levels`.
    """
    text = text.removeprefix(BOM_UTF8)
    try:
        message = _decode_strict(text)
    except (ValueError, RecursionError):
        if text.lstrip()[:1] == b"[":
            return _strict_batch(text, levels)
        raise _defect(text) from None
    if is_deeper(text, levels):
        key = None if message.id is msgspec.UNSET else message.id
        raise _too_deep(levels, key, answerable=key is not None and not message.is_answer)
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
    return [_strict_member(item) for item in items]


def _strict_member(text: msgspec.Raw) -> StrictMessage | MalformedMessage:
    try:
        return _decode_strict(text)
    except (ValueError, RecursionError):
        return _defect(bytes(text))


def _too_deep(levels: int, key: RequestId | None = None, *, answerable: bool = True) -> MalformedMessage:
    why = f"Invalid request: nested more than {levels} levels deep"
    return MalformedMessage(INVALID_REQUEST, why, id=key, answerable=answerable)


def _defect(text: bytes) -> MalformedMessage:
    """Return the error for a text that is no message."""
    try:
        _skip(text)  # finds what is no JSON without converting its numbers a second time
        value = _decode_any(text)
    except (ValueError, RecursionError):
        return MalformedMessage(PARSE_ERROR, _NO_JSON)
    if not isinstance(value, dict):
        return MalformedMessage(INVALID_REQUEST, "Invalid request: a message is a JSON object")
    members = cast("dict[str, Any]", value)
    key = members.get("id")
    if isinstance(key, str) or (isinstance(key, int) and not isinstance(key, bool)):
        known = key
    else:
        known = None
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
    return MalformedMessage(INVALID_REQUEST, f"Invalid request: {why}", id=known, answerable=not silent)


# Writing


def encode_value(value: Any, *, errors: Literal["strict", "replace"] = "strict", allow_nan: bool = False) -> bytes:
    """Return a JSON value as its text.

    Args:
        value: Any JSON value; members that are `msgspec.Raw` are put in as they are.
        errors: `"replace"` writes a question mark for half of a surrogate pair, as `os.fsdecode` makes of a file name
            that is no UTF-8; `"strict"` refuses it.
        allow_nan: Write null for a number that is not finite, for which JSON has no word, instead of refusing it.

    Raises:
        ValueError: It holds a value that JSON cannot express, or is nested too deeply.
        TypeError: It holds an object that is no JSON value.
    """
    try:
        text = _encode(value)
    except UnicodeEncodeError:
        if errors == "strict":
            raise
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    # what msgspec makes of NaN is null, a silent change. `in` costs twice as much as `find`: it first asks for a number
    if not allow_nan and text.find(b"null") >= 0 and _has_non_finite(value):
        raise ValueError("a number is not finite")
    return text


def _has_non_finite(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(map(_has_non_finite, cast("Mapping[Any, Any]", value).values()))
    return isinstance(value, (list, tuple)) and any(map(_has_non_finite, cast("list[Any]", value)))


def encode_request(
    request_id: RequestId, method: str, params: Mapping[str, Any], *, errors: Literal["strict", "replace"] = "strict"
) -> bytes:
    """Return a request as one JSON text; raises the errors of `encode_value`."""
    return encode_value({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}, errors=errors)


def encode_notification(method: str, params: Mapping[str, Any]) -> bytes:
    """Return a notification as one JSON text; empty parameters are left out, numbers that are not finite are null.

    Raises:
        ValueError: The parameters are nested too deeply.
        TypeError: They hold an object that is no JSON value.
    """
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    return encode_value(message | {"params": params} if params else message, errors="replace", allow_nan=True)


def encode_result(request_id: ForeignId, result: Mapping[str, Any]) -> bytes:
    """Return the answer to a request as one JSON text.

    Raises:
        ValueError: The result holds a value that JSON cannot express, such as NaN, or is nested too deeply.
        TypeError: It holds an object that is no JSON value.
    """
    return encode_value({"jsonrpc": "2.0", "id": request_id, "result": result}, errors="replace")


def encode_error(request_id: ForeignId | None, code: int, message: str, data: Any = None) -> bytes:
    """Return the refusal of a request; `data` that is no JSON is left out."""
    error: dict[str, Any] = {"code": code, "message": message}
    refusal = {"jsonrpc": "2.0", "id": request_id, "error": error}
    if data is not None:
        try:
            return encode_value(refusal | {"error": error | {"data": data}}, errors="replace", allow_nan=True)
        except (TypeError, ValueError):
            pass  # the refusal itself must go out
    return encode_value(refusal, errors="replace")


def encode_batch(answers: list[bytes]) -> bytes:
    """Return answers as one batch."""
    return b"[" + b",".join(answers) + b"]"


def writable(value: ValueT) -> ValueT:
    """Return a JSON value in plain types that any encoder can write, for messages encoded elsewhere.

    Half of a surrogate pair is replaced; a value without any is returned unchanged.

    Raises:
        ValueError: It holds a value that JSON cannot express, such as NaN, or is nested too deeply.
        TypeError: It holds an object that is no JSON value.
    """
    try:
        encode_value(value)
    except UnicodeEncodeError:
        return _decode_any(encode_value(value, errors="replace"))
    return value


def decoded(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result without raw members, for encoders that are not ours."""
    if not any(isinstance(member, msgspec.Raw) for member in result.values()):
        return result
    return {name: value_of(member) if isinstance(member, msgspec.Raw) else member for name, member in result.items()}
