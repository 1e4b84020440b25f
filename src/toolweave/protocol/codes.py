"""Error codes of JSON-RPC 2.0 and of MCP, by the names that the specifications give them."""

from __future__ import annotations

__all__ = [
    "CONNECTION_CLOSED",
    "HEADER_MISMATCH",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "MISSING_CAPABILITY",
    "PARSE_ERROR",
    "REQUEST_CANCELLED",
    "RESOURCE_NOT_FOUND",
    "UNSUPPORTED_VERSION",
    "URL_ELICITATION_REQUIRED",
]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

CONNECTION_CLOSED = -32000
"""Reserved for implementations; the official SDKs report a lost connection with it."""
RESOURCE_NOT_FOUND = -32002
"""An unknown resource in legacy revisions; from 2026-07-28 on it is `INVALID_PARAMS`."""
REQUEST_CANCELLED = -32800
"""Ends the response to a request that its client has cancelled, where the transport wants one."""
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
URL_ELICITATION_REQUIRED = -32042
"""Revision 2025-11-25 only: the user has to visit a page first, named in the error's data."""
