"""JSON texts of others, read in time that is proportional to their length.

Every text that comes from outside is decoded here. msgspec converts a number with an exponent beyond 288 by a slow
exact method: `1e308` takes 8 microseconds, a thousand times as long as `1.5`, and a megabyte of them stops the event
loop for seconds. Python's `float` needs 0.2 microseconds for any number of that length. Therefore numbers with a
fraction or an exponent are converted by `float`, unless a text holds many of them and none has three digits of
exponent: then msgspec's own conversion is bounded, and several times faster.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import isfinite
from typing import Any, Generic, TypeVar, overload

import msgspec

ValueT = TypeVar("ValueT")

_LONG = 1_000
"""Bytes from which it pays to look whether a text is full of fractions."""
_SAMPLE = 1_024
"""Bytes in the middle of a text in which points are counted."""
_MANY_POINTS = 8
"""Points in a sample from which the search for long exponents costs less than it saves."""
# Each pattern begins with a letter, which `re` looks for with `memchr`: ten times as fast as one pattern for both.
_LONG_EXPONENT = re.compile(rb"e[-+]?[0-9]{3}")
_LONG_CAPITAL_EXPONENT = re.compile(rb"E[-+]?[0-9]{3}")

_STRIDE = 150
_DIGITS = re.compile(rb"[0-9]{2}")


class JsonDecoder(Generic[ValueT]):
    """Decoder of JSON texts to values of one type.

    The type has no `float` in a member that a text can repeat: typed numbers are converted by msgspec. Use `Any`.

    Attributes:
        decode: Decodes a text, or a `msgspec.Raw`, without looking for fractions first: for texts known to be short.
    """

    __slots__ = ("_decode_short_exponents", "decode")

    def __init__(self, kind: type[ValueT] | Any = Any) -> None:
        self.decode: Callable[[bytes | str | msgspec.Raw], ValueT]
        self.decode = msgspec.json.Decoder(kind, float_hook=_finite).decode
        self._decode_short_exponents: Callable[[bytes], ValueT] = msgspec.json.Decoder(kind).decode

    def __call__(self, text: bytes | str | msgspec.Raw) -> ValueT:
        """Return the value of a text.

        Raises:
            ValueError: The text is not JSON, not UTF-8 or not of the type, or a number is out of range.
            RecursionError: It is nested too deeply.
        """
        if len(text) >= _LONG and type(text) is bytes and _is_full_of_fractions(text) and not has_long_exponent(text):
            return self._decode_short_exponents(text)
        return self.decode(text)


@overload
def decode_json(text: bytes | str | msgspec.Raw) -> Any: ...
@overload
def decode_json(text: bytes | str | msgspec.Raw, kind: type[ValueT]) -> ValueT: ...
def decode_json(text: bytes | str | msgspec.Raw, kind: type[Any] | Any = Any) -> Any:
    """Return the value of a JSON text, as a value of `kind` if one is given.

    Raises:
        ValueError: The text is not JSON, not UTF-8 or not of the type, or a number is out of range.
        RecursionError: It is nested too deeply.
    """
    if kind is Any:
        return _decode_any(text)
    # Members of type `float` do not reach the hook, and a text can repeat each of them without end.
    if has_long_exponent(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)):
        return msgspec.convert(_decode_any(text), kind)
    return msgspec.json.decode(text, type=kind)


def has_long_exponent(text: bytes) -> bool:
    """Return whether a text may hold a number with three or more digits of exponent."""
    # Not `any`: its generator costs more than the search of a short text.
    if _LONG_EXPONENT.search(text) is not None:
        return True
    return _LONG_CAPITAL_EXPONENT.search(text) is not None


def is_out_of_range(text: bytes) -> bool:
    """Return whether a JSON text cannot be read for a number that is too large for a `float`."""
    # Every run of as many digits as that takes covers two places in a row of this sample.
    if not has_long_exponent(text) and _DIGITS.search(text[::_STRIDE]) is None:
        return False
    try:
        _decode_any(text)
    except (ValueError, RecursionError):
        return True
    return False


def _is_full_of_fractions(text: bytes) -> bool:
    middle = len(text) // 2
    return text.count(b".", middle, middle + _SAMPLE) >= _MANY_POINTS


def _finite(text: str) -> float:
    value = float(text)
    if isfinite(value):
        return value
    raise ValueError("Number out of range")


_decode_any: JsonDecoder[Any] = JsonDecoder()
