"""Names and bounds that metrics and spans share: the upstream of a request, the outcome of an answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec

from toolweave.errors import RequestError
from toolweave.middleware._outcome import is_failed
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from toolweave.protocol.input_required import INPUT_REQUIRED
from toolweave.protocol.jsonrpc import value_of
from toolweave.serve._request import Request

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Upper bounds of durations in seconds: those of the OpenTelemetry conventions for MCP, and finer ones below 10 ms."""
KNOWN_METHODS = frozenset(value for name, value in vars(methods).items() if name.isupper() and isinstance(value, str))
"""The methods that may be labels; any other method that a client makes up is none."""

_OUTCOMES = {
    INVALID_PARAMS: "invalid",
    INVALID_REQUEST: "invalid",
    METHOD_NOT_FOUND: "not_found",
    INTERNAL_ERROR: "internal",
}


class RequestSubject(NamedTuple):
    """The subject of a request.

    Attributes:
        upstream: The server that it goes to; "" for requests the gateway answers itself, and where it is not known.
        tool: The tool's own name, or None.
    """

    upstream: str
    tool: str | None


def subject_of(request: Request) -> RequestSubject:
    """Return the subject of a request, as the endpoint will find it."""
    server = request.server
    if server is None:
        return RequestSubject("", None)
    name = request.params.get("name")
    if request.method == methods.TOOLS_CALL:
        spec = server.find_tool(name) if isinstance(name, str) else None
        return RequestSubject("", None) if spec is None else RequestSubject(spec.server or "", spec.original_name)
    owners = (offer.server for offer in server.offers_of(request.method, request.params))
    return RequestSubject(next((owner for owner in owners if owner is not None), ""), None)


def outcome_of_result(result: Mapping[str, Any]) -> str:
    """Return `ok`, `tool_error` for a failed tool, or the type of a result that is not complete."""
    kind = result.get("resultType", "complete")
    if kind != "complete":
        return kind if kind in (INPUT_REQUIRED, "task") else "other"
    return "tool_error" if is_failed(result) else "ok"


def outcome_of_error(error: BaseException) -> str:
    """Return a word for an error: few, as they are labels."""
    if isinstance(error, RequestError):
        if error.retry_after is not None:
            return "limited"
        return _OUTCOMES.get(error.code, "error")
    return "internal" if isinstance(error, Exception) else "cancelled"


def first_text(result: Mapping[str, Any]) -> str:
    """Return the first text in a result, which says of a failed tool why."""
    content: Any = result.get("content")
    if isinstance(content, msgspec.Raw):
        try:
            content = value_of(content)
        except ValueError:  # a number that is out of range
            return ""
    for block in cast("list[Any]", content) if isinstance(content, list) else ():
        text: Any = cast("dict[str, Any]", block).get("text") if isinstance(block, dict) else None
        if isinstance(text, str):
            return text
    return ""
