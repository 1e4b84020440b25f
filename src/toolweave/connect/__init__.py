"""One MCP server, kept alive, and its tools as a `Toolset`.

The room knows how to reach a server and to speak with it; it refuses to know other servers,
models, agents and how anything is shown.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolweave.connect._channel import Channel, memory_channels
    from toolweave.connect._client_features.callbacks import Callbacks, SamplingRequest
    from toolweave.connect._connection import Connecting, McpConnection, connect_mcp
    from toolweave.connect._feed.list_cache import ListChanged
    from toolweave.connect._feed.subscriptions import ResourceUpdated
    from toolweave.connect._health import Silent
    from toolweave.connect._report import Report, Step
    from toolweave.connect._state import ConnectionState, StateChanged
    from toolweave.connect._transports import register_transport
    from toolweave.connect._wire.credentials import AuthChallenge, AuthHook
    from toolweave.protocol.client_requests import (
        ElicitationRequest,
        ElicitationResult,
        Root,
        SamplingMessage,
        SamplingResult,
    )
    from toolweave.protocol.logs import LogMessage
    from toolweave.protocol.server_features import (
        Completion,
        Prompt,
        PromptArgument,
        PromptMessage,
        PromptResult,
        Resource,
        ResourceTemplate,
    )

__all__ = [
    "AuthChallenge",
    "AuthHook",
    "Callbacks",
    "Channel",
    "Completion",
    "Connecting",
    "ConnectionState",
    "ElicitationRequest",
    "ElicitationResult",
    "ListChanged",
    "LogMessage",
    "McpConnection",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "PromptResult",
    "Report",
    "Resource",
    "ResourceTemplate",
    "ResourceUpdated",
    "Root",
    "SamplingMessage",
    "SamplingRequest",
    "SamplingResult",
    "Silent",
    "StateChanged",
    "Step",
    "connect_mcp",
    "memory_channels",
    "register_transport",
]

_HOMES = {
    "AuthChallenge": "_wire.credentials",
    "AuthHook": "_wire.credentials",
    "Callbacks": "_client_features.callbacks",
    "Channel": "_channel",
    "Completion": ".protocol.server_features",
    "Connecting": "_connection",
    "ConnectionState": "_state",
    "ElicitationRequest": ".protocol.client_requests",
    "ElicitationResult": ".protocol.client_requests",
    "ListChanged": "_feed.list_cache",
    "LogMessage": ".protocol.logs",
    "McpConnection": "_connection",
    "Prompt": ".protocol.server_features",
    "PromptArgument": ".protocol.server_features",
    "PromptMessage": ".protocol.server_features",
    "PromptResult": ".protocol.server_features",
    "Report": "_report",
    "Resource": ".protocol.server_features",
    "ResourceTemplate": ".protocol.server_features",
    "ResourceUpdated": "_feed.subscriptions",
    "Root": ".protocol.client_requests",
    "SamplingMessage": ".protocol.client_requests",
    "SamplingRequest": "_client_features.callbacks",
    "SamplingResult": ".protocol.client_requests",
    "Silent": "_health",
    "StateChanged": "_state",
    "Step": "_report",
    "connect_mcp": "_connection",
    "memory_channels": "_channel",
    "register_transport": "_transports",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
