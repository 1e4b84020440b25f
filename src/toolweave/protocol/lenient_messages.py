"""JSON-RPC 2.0 messages as a client reads them from a server: leniently. Pure: no I/O, no state.

Junk is skipped, a response that cannot be read as a whole is still found by its id, and list entries that are nested
too deeply become null, so that one bad message fails one call and never the conversation.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from typing import Any

import msgspec

from toolweave._json import JsonDecoder, is_out_of_range
from toolweave._json_types import as_integer
from toolweave.protocol.brackets import has_more_brackets
from toolweave.protocol.jsonrpc import MAX_BATCH, MAX_DEPTH, VERSION_MEMBER, RequestId
from toolweave.protocol.lenient_json import mended

__all__ = [
    "BEFORE_JSON",
    "MAX_CONTAINERS",
    "MAX_DIGITS",
    "LenientMessage",
    "MendedMessage",
    "RawResult",
    "answer_behind",
    "answer_id",
    "decode_lenient",
    "decode_raw_result",
    "has_leading_method",
    "is_json",
    "may_answer",
    "message_lines",
    "objects_in",
    "own_id",
    "without_deep_entries",
]

BEFORE_JSON = b" \t\r\n\x1e"
"""White space, and the separator before each text of `application/json-seq`."""
MAX_CONTAINERS = 2_000_000
"""Arrays and objects in one message to a client: reading them is one step of the event loop, however many there are."""

# A string matches to its end or to that of the text: one that never ends must not be read again from each quote in it.
_BRACKETS = rb'(?s)"(?:[^"\\]++|\\.)*+"?|[\[\]{}]'
_BEGIN_OF_OBJECT = rb'\{\s*+"'
_LEADING = rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
_LEADING_ID = _LEADING + rb'"id"\s*:\s*(?:(\d+)|"([\x20-\x21\x23-\x7e]{1,80})")\s*,'
_LEADING_METHOD = re.compile(_LEADING + rb'"method"\s*:')
MAX_DIGITS = 19
"""Digits of a number that is too long to be one of our ids."""
_OWN_ID = re.compile(rf"0|[1-9][0-9]{{0,{MAX_DIGITS - 2}}}")
_SHOWN_DIGITS = 40
# Of `{"result": {"tools": [{`.
_ENTRY_DEPTH = 4
# Bytes; an array or an object has two brackets, so a smaller message holds fewer of them.
_LARGE = 2 * MAX_CONTAINERS
# Brackets and quotes of a list that is searched for deep entries; about half a second.
_MAX_TOKENS = 1_000_000
_HIDING = (b"\\u", b"\\b", b"\\f")
"""Escapes that may stand for a hidden character."""


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


_decode_lenient = JsonDecoder(LenientMessage)
_decode_mended = JsonDecoder(MendedMessage)
_decode_raw_result = JsonDecoder(RawResult)
_decode_envelope = JsonDecoder(_Envelope)
_decode_members = JsonDecoder(list[msgspec.Raw])
_skip = JsonDecoder(msgspec.Raw)
_ID_TYPES = frozenset({int, str, float, type(None), msgspec.UnsetType})


def decode_raw_result(text: bytes) -> RawResult | None:
    """Return the result in a text with its members undecoded; None for a text that `decode_lenient` has to read.

    Decoded member by member, it equals the result of `decode_lenient` (`tests/protocol/test_raw_results.py`).
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
        ValueError: The text is not a JSON-RPC message, or a batch without any. Or it holds more than `MAX_CONTAINERS`,
            or is a batch of more than `MAX_BATCH` messages.
        RecursionError: The text is nested more deeply than can be read; see `without_deep_entries`.
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
    # A RecursionError is passed on. From Python 3.14 on, the result could be left raw, as what is skipped may be deeper
    # than what is read; but then the deep entries of a list could not be taken out of its text.
    try:
        message = _decode_lenient(text)
    except ValueError:
        # For text that is not UTF-8, the decoder does not raise `DecodeError`.
        readable = mended(bytes(text))
        if readable is None:
            message = _without_result(text)
        else:
            message = _decode_mended(readable)
    if type(message.id) not in _ID_TYPES:
        raise msgspec.ValidationError("'id' is not a number, a string or null")
    return message


def _without_result(text: bytes | msgspec.Raw) -> LenientMessage:
    """Return a message with its result left raw: if only that is broken, its id still finds the call that it fails."""
    envelope = _decode_envelope(text)
    return LenientMessage(
        id=envelope.id, method=envelope.method, params=envelope.params, result=envelope.result, error=envelope.error
    )


def is_json(text: bytes) -> bool:
    """Whether a text is JSON; of one that is nested too deeply, as far as it can be read."""
    try:
        _skip(text)
    except msgspec.DecodeError:
        return False
    except RecursionError:
        pass
    return True


def may_answer(text: bytes, key: int | str) -> bool:
    """Return whether a text that is nested too deeply to be read may be the answer to a request."""
    if has_leading_method(text):
        return False
    named = answer_id(text)
    if named is None:
        return True
    return own_id(named) == key


def message_lines(body: bytes) -> list[bytes]:
    """Return the messages of a body that has one in each line; none if a line is anything else.

    A body that is cut or mixed with other text is judged as a whole, before any of its messages is handled.
    """
    lines = [line.strip(BEFORE_JSON) for line in body.removeprefix(BOM_UTF8).splitlines()]
    lines = [line for line in lines if line]
    if not all(VERSION_MEMBER in line for line in lines):
        return []
    if not all(map(is_json, lines)):
        return []
    return lines


def without_deep_entries(text: bytes, *, levels: int = MAX_DEPTH) -> bytes:
    """Return the answer to a list request with null instead of each entry nested deeper than `levels`.

    One such entry would make the whole list unreadable; the nulls are reported as entries that are not objects.
    A text with more than a million brackets and quotes is returned unchanged.
    """
    if _holds_too_many_tokens(text):
        return text
    # The scan stands at `depth`. `start` and `deepest` are of the entry that is open, and all of the text before
    # `copied` is in `kept`.
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
        if depth == 0:
            between = text[start : found.start()].strip()
            if token != b"{" or between:
                return [text]
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
            if depth == 0:
                parts.append(text[start : found.end()].strip())
                start = found.end()
    if text[start:].strip():
        return [text]
    return parts or [text]


def _holds_too_many_tokens(text: bytes) -> bool:
    return sum(map(text.count, (b"{", b"}", b"[", b"]", b'"'))) > _MAX_TOKENS


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
    if message.method is not msgspec.UNSET:
        return None
    if message.result is msgspec.UNSET and message.error is msgspec.UNSET:
        return None
    return message


def own_id(came: object) -> RequestId | None:
    """Return the id of our request that an answer's id means; None where it cannot be one.

    Some servers write numbers as strings, others as fractions (`4.0`); leading zeros, other digits or signs make
    another id of it.
    """
    if isinstance(came, str):
        if _OWN_ID.fullmatch(came):
            return int(came)
        return came
    if isinstance(came, float):
        if came.is_integer():
            return int(came)
        return None
    return as_integer(came)
