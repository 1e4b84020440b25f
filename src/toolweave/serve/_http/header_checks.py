"""Checks of the headers in which a POST of the modern era repeats its body (specification, Streamable HTTP).

Pure: headers and a message in, the client or the refusal out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolweave.errors import RequestError
from toolweave.protocol.codes import HEADER_MISMATCH, INVALID_PARAMS
from toolweave.protocol.headers import NAME_PARAMETERS, decode_value
from toolweave.protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from toolweave.serve._envelope import client_of_envelope
from toolweave.serve._http.asgi import Headers

__all__ = ["check", "repeated"]

_ROUTED = (b"mcp-protocol-version", b"mcp-method", b"mcp-name")


def check(
    method: str,
    params: Mapping[str, Any],
    headers: Headers,
    raw: Sequence[tuple[bytes, bytes]],
    versions: Sequence[str],
) -> None:
    """Check a request: its routing headers, then its envelope.

    Args:
        method: The message's method.
        params: Its parameters.
        headers: The headers, without white space around their values.
        raw: The headers as received, repetitions included.
        versions: The revisions that are served.

    Raises:
        RequestError: A header contradicts the body, is missing or repeated (-32020); the envelope is incomplete
            (-32602), or of an unsupported revision (-32022).
    """
    twice = repeated(raw)
    if twice is not None:
        raise RequestError(f"the header {twice.decode()} appears more than once", code=HEADER_MISMATCH)
    meta: Any = params.get("_meta")
    if not isinstance(meta, dict) or PROTOCOL_VERSION not in meta or CLIENT_CAPABILITIES not in meta:
        raise RequestError(
            f"params._meta must have {PROTOCOL_VERSION!r} and {CLIENT_CAPABILITIES!r}", code=INVALID_PARAMS
        )
    said = headers.get(b"mcp-protocol-version")
    if said is None or said.decode("latin-1") != meta[PROTOCOL_VERSION]:
        raise _mismatch("mcp-protocol-version", f"params._meta[{PROTOCOL_VERSION!r}]")
    if headers.get(b"mcp-method", b"").decode("latin-1") != method:
        raise _mismatch("mcp-method", "the method")
    named = NAME_PARAMETERS.get(method)
    if named is not None:
        value = params.get(named)
        if value is not None and decode_value(headers.get(b"mcp-name")) != value:
            raise _mismatch("mcp-name", f"params.{named}")
    client_of_envelope(params, versions)


def repeated(raw: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    """Return a routing header that occurs more than once, or None: two readers might choose differently."""
    names = [name for name, _ in raw]
    return next((name for name in _ROUTED if names.count(name) > 1), None)


def _mismatch(header: str, what: str) -> RequestError:
    return RequestError(f"the header {header} is missing or differs from {what}", code=HEADER_MISMATCH)
