"""The headers that decide how a POST is answered: one list for every check, on every path.

The verdict on the values of `JUDGED` is kept and reused for later requests. So a check whose verdict is kept reads
headers through `JudgedHeaders` only, which raises for any other header: a new check cannot read a header that is
missing from the list. The headers of `COMPARED` are compared with each request instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from toolweave.serve._http.asgi import Headers

JUDGED = (
    b"accept",
    b"content-encoding",
    b"content-type",
    b"host",
    b"mcp-method",
    b"mcp-protocol-version",
    b"origin",
    b"transfer-encoding",
)
"""Headers whose values decide without the body."""
COMPARED = (b"content-length", b"mcp-name", b"mcp-session-id")
"""Headers whose values decide together with the body, the limits or the open sessions."""
ROUTING = (b"mcp-protocol-version", b"mcp-method", b"mcp-name")
"""Headers that repeat a part of the body for proxies."""
SINGLE = (b"host", b"origin", b"content-type", b"content-length", b"transfer-encoding", b"authorization")
"""Headers that a request may have only once."""

JudgedValues: TypeAlias = tuple[bytes | None, ...]
"""The values of `JUDGED`; None for a header that is missing."""

_JUDGED = frozenset(JUDGED)


class JudgedHeaders(Mapping[bytes, bytes]):
    """The headers of a request for a check whose verdict is kept.

    Args:
        headers: All headers of the request.
    """

    __slots__ = ("_headers",)

    def __init__(self, headers: Headers) -> None:
        self._headers = headers

    def __getitem__(self, name: bytes) -> bytes:
        if name not in _JUDGED:
            raise RuntimeError(f"The header {name.decode()} decides nothing: it is not listed in JUDGED")
        return self._headers[name]

    def __iter__(self) -> Iterator[bytes]:
        return (name for name in self._headers if name in _JUDGED)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def judged_values(headers: Headers) -> JudgedValues:
    """Return the values that decide, in the order of `JUDGED`."""
    return tuple(map(headers.get, JUDGED))


def headers_of(values: JudgedValues) -> JudgedHeaders:
    """Return the headers that have these values, and no others."""
    return JudgedHeaders({name: value for name, value in zip(JUDGED, values, strict=True) if value is not None})


def first_repeated(raw: Sequence[tuple[bytes, bytes]], single: Sequence[bytes]) -> bytes | None:
    """Return the first of these headers that occurs more than once, or None."""
    names = [name for name, _ in raw]
    return next((name for name in single if names.count(name) > 1), None)
