"""The header `Accept`: whether a client accepts JSON, or an event stream (RFC 9110, 12.5.1)."""

from __future__ import annotations

import functools
import re

JSON_RANGES = frozenset({b"application/json", b"application/*", b"*/*"})
EVENT_RANGES = frozenset({b"text/event-stream", b"text/*", b"*/*"})

_MAX_KEPT_BYTES = 256
"""Bytes of a header that is remembered: a client sends the same one each time, and a stranger a new one."""
_NOT_ACCEPTABLE = re.compile(rb"q\s*=\s*0(\.0*)?\s*")


def accepts_json(accept: bytes) -> bool:
    """Whether the header accepts a response of JSON."""
    return not JSON_RANGES.isdisjoint(_ranges(accept))


def accepts_events(accept: bytes) -> bool:
    """Whether the header accepts an event stream."""
    return not EVENT_RANGES.isdisjoint(_ranges(accept))


def _ranges(accept: bytes) -> frozenset[bytes]:
    if len(accept) <= _MAX_KEPT_BYTES:
        return _kept(accept)
    return _read(accept)


def _read(accept: bytes) -> frozenset[bytes]:
    found: set[bytes] = set()
    for part in accept.lower().split(b","):
        media_range, *parameters = part.split(b";")
        # A weight of 0 excludes the type (RFC 9110, 12.4.2). Any other weight only orders, and there is one type to
        # choose from.
        if not any(_NOT_ACCEPTABLE.fullmatch(parameter.strip()) for parameter in parameters):
            found.add(media_range.strip())
    return frozenset(found)


_kept = functools.lru_cache(maxsize=64)(_read)
