"""The nesting of JSON texts, found in their brackets without decoding them. Pure: no I/O, no state."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import accumulate

__all__ = ["depth_change", "has_more_brackets", "is_deeper", "opened", "outside_of_strings"]

# Brackets of one kind that are looked for one by one, which is quick where there are few.
_SPARSE = 10_000
# Bytes in which strings are found at a time.
_SLICE = 1_000_000
_STEPS = bytes.maketrans(b"{[}]", b"\x01\x01\xff\xff")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"{[}]"))


def outside_of_strings(text: bytes) -> Iterator[bytes]:
    """Yield a JSON text without its strings, in parts: without escaped quotes, quotes begin and end strings in turn.

    A regular expression needs a hundred times as long for a text of brackets.
    """
    # Escaped backslashes first: in `\\"` the quote ends a string, in `\"` it does not.
    if b"\\" in text:
        unescaped = text.replace(rb"\\", b"").replace(rb"\"", b"")
    else:
        unescaped = text
    # `inside` is 1 while a slice begins within a string: then every second part from the second on is outside.
    inside = 0
    for at in range(0, len(unescaped), _SLICE):
        parts = unescaped[at : at + _SLICE].split(b'"')
        yield b"".join(parts[inside::2])
        inside = (inside + len(parts) - 1) % 2


def depth_change(text: bytes) -> int:
    """Return the change of nesting depth over a part of a JSON text."""
    return sum(opened(part) - _closed(part) for part in outside_of_strings(text))


def opened(text: bytes) -> int:
    """Return the number of opening brackets in a text, those in strings included."""
    return text.count(b"{") + text.count(b"[")


def _closed(text: bytes) -> int:
    return text.count(b"}") + text.count(b"]")


def is_deeper(text: bytes, levels: int) -> bool:
    """Whether a JSON text is nested more deeply than allowed; brackets in strings do not count."""
    # Nearly every text ends here: one that opens few brackets cannot be deep, whatever stands in its strings.
    if opened(text) <= levels:
        return False
    depth = 0
    for part in outside_of_strings(text):
        # Each bracket becomes the step that it changes the depth by, so that the sums are made in C.
        steps = array("b", part.translate(_STEPS, _NOT_BRACKETS))
        deepest = max(accumulate(steps, initial=depth))
        if deepest > levels:
            return True
        depth += opened(part) - _closed(part)
    return False


def has_more_brackets(text: bytes, limit: int) -> bool:
    """Return whether a JSON text opens more arrays and objects than `limit`."""
    if _count(text, b"[") + _count(text, b"{") <= limit:
        return False
    found = 0
    for part in outside_of_strings(text):
        found += opened(part)
        if found > limit:
            return True
    return False


def _count(text: bytes, bracket: bytes) -> int:
    """Return how often a bracket is in a text; a tenth of the time of `count` where most of it is one long string."""
    at = -1
    for number in range(_SPARSE):
        at = text.find(bracket, at + 1)
        if at < 0:
            return number
    return _SPARSE + text.count(bracket, at + 1)
