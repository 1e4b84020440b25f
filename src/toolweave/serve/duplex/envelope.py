"""Who asks, in the stateless era: the envelope in a request's `_meta` -> `Client` (PROTOCOL.md 1.2).

Knows no carrier; what HTTP repeats in headers is `guard.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolweave.errors import RequestError
from toolweave.serve.codes import (
    CAPABILITIES,
    CLIENT_INFO,
    INVALID_PARAMS,
    MODERN_VERSION,
    PROTOCOL_VERSION,
    UNSUPPORTED_VERSION,
)
from toolweave.serve.request import Client, Json

__all__ = ["enveloped_client", "has_envelope", "unsupported_version"]


def has_envelope(params: Mapping[str, Any]) -> bool:
    """Whether a request is of the stateless era: its `_meta` names a protocol version, however it is wrong else."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and PROTOCOL_VERSION in meta


def enveloped_client(params: Mapping[str, Any], *, principal: str | None = None, name: str | None = None) -> Client:
    """Return who sent a request of the stateless era.

    Args:
        params: The request's parameters.
        principal: Who is behind it, where the endpoint authorizes.
        name: The conversation it came in, or None.

    Raises:
        RequestError: The envelope is not whole (-32602), or of a revision that is not served (-32022).
    """
    meta = params.get("_meta")
    members = cast("Json", meta) if isinstance(meta, dict) else {}
    for key, kind in ((PROTOCOL_VERSION, str), (CAPABILITIES, dict)):
        if not isinstance(members.get(key), kind):
            raise RequestError(f"params._meta must have {key!r}, {_KINDS[kind]}", code=INVALID_PARAMS)
    if members[PROTOCOL_VERSION] != MODERN_VERSION:
        raise unsupported_version(members[PROTOCOL_VERSION])
    info = members.get(CLIENT_INFO)
    return Client(
        version=MODERN_VERSION,
        capabilities=members[CAPABILITIES],
        info=cast("Json", info) if isinstance(info, dict) else None,
        principal=principal,
        conversation=name,
    )


_KINDS = {str: "a string", dict: "an object"}


def unsupported_version(requested: object) -> RequestError:
    """Return the refusal of a revision that is not served here, with those that are."""
    data: Json = {"supported": [MODERN_VERSION]}
    if isinstance(requested, str):
        data["requested"] = requested
    return RequestError("Unsupported protocol version", code=UNSUPPORTED_VERSION, data=data)
