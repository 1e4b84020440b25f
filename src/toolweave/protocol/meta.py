"""Keys of `_meta` and names of extensions that the specification reserves."""

from __future__ import annotations

__all__ = [
    "CLIENT_CAPABILITIES",
    "CLIENT_INFO",
    "LOG_LEVEL",
    "PROTOCOL_VERSION",
    "RELATED_TASK",
    "SERVER_INFO",
    "SUBSCRIPTION_ID",
    "TASKS_EXTENSION",
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
