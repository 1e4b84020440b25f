"""The headers that decide how a POST is answered: one list for every check, on every path.

The verdict on the values of `JUDGED` is kept and reused for later requests. So a check whose verdict is kept reads
headers through `JudgedHeaders` only, which raises for any other header: a new check cannot read a header that is
missing from the list. The headers of `COMPARED` are compared with each request instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

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

T = TypeVar("T")

_JUDGED = frozenset(JUDGED)
_MAX_KEPT = 1024
_MAX_KEPT_BYTES = 2048  # bytes of header values


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


class KeptVerdicts(dict[JudgedValues, T]):
    """The verdicts on values of headers, each made at its first use.

    Args:
        judge: Makes a verdict of the headers that decide; it must depend on nothing else that may change.
    """

    # Clients choose the values, so they must not decide how much memory is held: long ones are not kept, and all are
    # forgotten when there are too many.

    def __init__(self, judge: Callable[[JudgedHeaders], T]) -> None:
        super().__init__()
        self._judge = judge

    def __missing__(self, values: JudgedValues) -> T:
        """Judge values that are not known."""
        headers = headers_of(values)
        verdict = self._judge(headers)
        if sum(map(len, headers.values())) <= _MAX_KEPT_BYTES:
            if len(self) >= _MAX_KEPT:
                self.clear()
            self[values] = verdict
        return verdict


def first_repeated(raw: Sequence[tuple[bytes, bytes]], single: Sequence[bytes]) -> bytes | None:
    """Return the first of these headers that occurs more than once, or None."""
    names = [name for name, _ in raw]
    return next((name for name in single if names.count(name) > 1), None)
