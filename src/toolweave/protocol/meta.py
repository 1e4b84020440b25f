"""Keys of `_meta` and names of extensions that the specification reserves."""

from __future__ import annotations

from collections.abc import Mapping

from toolweave._json_types import JsonObject, without_members

__all__ = [
    "APPS_EXTENSION",
    "CLIENT_CAPABILITIES",
    "CLIENT_INFO",
    "LOG_LEVEL",
    "OF_EVERY_ERA",
    "PROTOCOL_VERSION",
    "RELATED_TASK",
    "SERVER_INFO",
    "SKILLS_EXTENSION",
    "SUBSCRIPTION_ID",
    "TASKS_EXTENSION",
    "trace_context_in",
    "with_trace_context",
]

_PREFIX = "io.modelcontextprotocol/"

PROTOCOL_VERSION = f"{_PREFIX}protocolVersion"
CLIENT_CAPABILITIES = f"{_PREFIX}clientCapabilities"
CLIENT_INFO = f"{_PREFIX}clientInfo"
SERVER_INFO = f"{_PREFIX}serverInfo"
LOG_LEVEL = f"{_PREFIX}logLevel"
SUBSCRIPTION_ID = f"{_PREFIX}subscriptionId"
RELATED_TASK = f"{_PREFIX}related-task"
"""The task that a message of revision 2025-11-25 belongs to."""
TASKS_EXTENSION = f"{_PREFIX}tasks"
"""The extension that defines tasks in later revisions."""
SKILLS_EXTENSION = f"{_PREFIX}skills"
"""The extension by which servers publish Agent Skills (SEP-2640)."""
APPS_EXTENSION = f"{_PREFIX}ui"
"""The extension by which tools have pages that show their results (MCP Apps, SEP-1865)."""
OF_EVERY_ERA = frozenset({SKILLS_EXTENSION, APPS_EXTENSION})
"""The extensions that handshake revisions may also declare."""

_TRACE_CONTEXT = ("traceparent", "tracestate", "baggage")
"""Keys without a prefix that OpenTelemetry's propagators read (SEP-414)."""


def trace_context_in(carrier: JsonObject) -> dict[str, str]:
    """Return the trace context in a `_meta`, or in HTTP headers."""
    return {key: value for key in _TRACE_CONTEXT if isinstance(value := carrier.get(key), str)}


def with_trace_context(meta: JsonObject, context: Mapping[str, str]) -> JsonObject:
    """Return a `_meta` with this trace context instead of the one it has; an empty one changes nothing."""
    if not context:
        return meta
    return {**without_members(meta, *_TRACE_CONTEXT), **context}
