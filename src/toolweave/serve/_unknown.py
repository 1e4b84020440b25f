"""Refusals of requests for unknown offers; the same for offers that a caller may not see, which thus stay secret."""

from __future__ import annotations

from toolweave.errors import RequestError
from toolweave.protocol.codes import INVALID_PARAMS, RESOURCE_NOT_FOUND
from toolweave.serve.request import OfferKind


def not_offered(kind: OfferKind, name: str, *, modern: bool) -> RequestError:
    """Return the refusal of a request for a tool, a prompt or a resource that is not offered."""
    if kind == "tools":
        return RequestError(f"Unknown tool: {name}", code=INVALID_PARAMS)
    if kind == "prompts":
        return RequestError(f"Unknown prompt: {name}", code=INVALID_PARAMS, data={"name": name})
    code = INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
    return RequestError(f"Resource not found: {name}", code=code, data={"uri": name})


def unknown_reference(kind: str, name: str) -> RequestError:
    """Return the refusal of a completion for a prompt or a resource template that is not offered."""
    return RequestError(f"Unknown {kind}: {name}", code=INVALID_PARAMS)
