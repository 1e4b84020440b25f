"""The second reading of a JSON text that is nearly JSON: text of a server that no strict reader accepts.

JavaScript cuts texts within an emoji and writes half of a surrogate pair; Python writes `NaN` and `Infinity`; others
write numbers beyond every range, or control characters within strings. The whole message is
still read. What JSON cannot say becomes U+FFFD or null; an id is never repaired. Pure.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from toolweave._json_types import JsonObject, as_array, object_entries

__all__ = ["mended"]

_MAX_LENGTH = 4_300
"""Longer whole numbers are out of range: neither msgspec nor `int` reads them, since that takes quadratic time."""


def mended(text: bytes) -> bytes | None:
    """Return a JSON text with the values of a text that is nearly JSON; None if it is too far from it.

    The time is proportional to the length of the text.
    """
    if text[:1] not in (b"{", b"["):
        return None
    # Only texts that msgspec has refused come here. Python's decoder accepts text that is nearly JSON, and writing its
    # value again gives a text that every reader accepts.
    try:
        value = _DECODER.decode(text.decode())
    except (ValueError, RecursionError):
        return None
    if not _has_sound_ids(value):
        return None
    try:
        return _without_halves(json.dumps(value, ensure_ascii=False, allow_nan=False)).encode()
    except (ValueError, RecursionError):
        return None


def _float_or_none(text: str) -> float | None:
    value = float(text)
    if isfinite(value):
        return value
    return None


def _integer_or_none(text: str) -> int | None:
    if len(text) > _MAX_LENGTH:
        return None
    return int(text)


def _nothing(_name: str) -> None:
    """Return null for `NaN`, `Infinity` and `-Infinity`."""


_DECODER = json.JSONDecoder(
    strict=False, parse_float=_float_or_none, parse_int=_integer_or_none, parse_constant=_nothing
)


def _has_sound_ids(value: Any) -> bool:
    """Return whether each message's id is as it was written: a repaired one could be that of another request."""
    messages = as_array(value)
    if messages is None:
        messages = [value]
    return all(map(_has_sound_id, object_entries(messages)))


def _has_sound_id(message: JsonObject) -> bool:
    if "id" not in message:
        return True
    identifier: Any = message["id"]
    if isinstance(identifier, str):
        return "\ufffd" not in identifier and _without_halves(identifier) == identifier
    return type(identifier) is int


def _without_halves(text: str) -> str:
    """Return a text with U+FFFD in place of each half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
