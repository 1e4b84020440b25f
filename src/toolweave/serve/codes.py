"""Numbers and names that the protocol reserves, as a server needs them (MCP specification 2026-07-28, JSON-RPC 2.0)."""

from __future__ import annotations

__all__ = [
    "CAPABILITIES",
    "CLIENT_INFO",
    "HANDSHAKE_VERSIONS",
    "HEADER_MISMATCH",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "LOG_LEVEL",
    "METHOD_NOT_FOUND",
    "MISSING_CAPABILITY",
    "MODERN_VERSION",
    "PARSE_ERROR",
    "PROTOCOL_VERSION",
    "SERVER_INFO",
    "SUBSCRIPTION_ID",
    "UNSUPPORTED_VERSION",
]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions that begin with `initialize`, oldest first."""
MODERN_VERSION = "2026-07-28"
"""The stateless revision: every request carries its own envelope in `_meta`."""

_PREFIX = "io.modelcontextprotocol/"
PROTOCOL_VERSION = f"{_PREFIX}protocolVersion"
CAPABILITIES = f"{_PREFIX}clientCapabilities"
CLIENT_INFO = f"{_PREFIX}clientInfo"
SERVER_INFO = f"{_PREFIX}serverInfo"
LOG_LEVEL = f"{_PREFIX}logLevel"
SUBSCRIPTION_ID = f"{_PREFIX}subscriptionId"
