"""Names and bounds that metrics and spans share. Pure."""

from __future__ import annotations

from toolweave.errors import RequestError
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Upper bounds of durations in seconds: those of the OpenTelemetry conventions for MCP, and finer ones below 10 ms."""
KNOWN_METHODS = frozenset(value for name, value in vars(methods).items() if name.isupper() and isinstance(value, str))
"""The methods that may be labels; a method that a client makes up is not one of them."""

_OUTCOMES = {
    INVALID_PARAMS: "invalid",
    INVALID_REQUEST: "invalid",
    METHOD_NOT_FOUND: "not_found",
    INTERNAL_ERROR: "internal",
}


def outcome_of_error(error: BaseException) -> str:
    """Return a word for an error: few, as they are labels."""
    if isinstance(error, RequestError):
        if error.retry_after is not None:
            return "limited"
        return _OUTCOMES.get(error.code, "error")
    if isinstance(error, Exception):
        return "internal"
    return "cancelled"
