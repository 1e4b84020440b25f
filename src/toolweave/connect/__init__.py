"""One MCP server, kept alive, and its tools as a `Toolset`.

This package reaches a server and speaks MCP with it. It does not depend on other servers, models or agents, or on
how anything is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.connect._channel import Channel, memory_channels
    from toolweave.connect._client_features.callbacks import Callbacks, SamplingRequest, ask_caller
    from toolweave.connect._clock import Clock
    from toolweave.connect._connection import Connecting, McpConnection, connect_mcp
    from toolweave.connect._event_subscriptions import ListenerDecorator
    from toolweave.connect._feed.list_cache import ListChanged
    from toolweave.connect._feed.subscriptions import ResourceUpdated
    from toolweave.connect._health import Silent
    from toolweave.connect._report import Report, Step
    from toolweave.connect._server_cards import FoundCards, find_server_cards
    from toolweave.connect._session import Wire
    from toolweave.connect._skills import LoadedSkill
    from toolweave.connect._state import ConnectionState, StateChanged
    from toolweave.connect._stdio.process import ServerProcess
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
    from toolweave.protocol.server_cards import CardRemote, ServerCard
    from toolweave.protocol.server_features import (
        Completion,
        Prompt,
        PromptArgument,
        PromptMessage,
        PromptResult,
        Resource,
        ResourceTemplate,
    )
    from toolweave.protocol.skills import Skill, SkillFile
    from toolweave.protocol.skipped_parts import SkippedPart
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".protocol.client_requests": (
                "ElicitationRequest",
                "ElicitationResult",
                "Root",
                "SamplingMessage",
                "SamplingResult",
            ),
            ".protocol.server_cards": ("CardRemote", "ServerCard"),
            ".protocol.skipped_parts": ("SkippedPart",),
            ".protocol.logs": ("LogMessage",),
            ".protocol.server_features": (
                "Completion",
                "Prompt",
                "PromptArgument",
                "PromptMessage",
                "PromptResult",
                "Resource",
                "ResourceTemplate",
            ),
            ".protocol.skills": ("Skill", "SkillFile"),
            "_channel": (
                "Channel",
                "memory_channels",
            ),
            "_client_features.callbacks": (
                "Callbacks",
                "SamplingRequest",
                "ask_caller",
            ),
            "_clock": ("Clock",),
            "_connection": (
                "Connecting",
                "McpConnection",
                "connect_mcp",
            ),
            "_event_subscriptions": ("ListenerDecorator",),
            "_feed.list_cache": ("ListChanged",),
            "_feed.subscriptions": ("ResourceUpdated",),
            "_health": ("Silent",),
            "_report": (
                "Report",
                "Step",
            ),
            "_server_cards": ("FoundCards", "find_server_cards"),
            "_session": ("Wire",),
            "_skills": ("LoadedSkill",),
            "_state": (
                "ConnectionState",
                "StateChanged",
            ),
            "_stdio.process": ("ServerProcess",),
            "_transports": ("register_transport",),
            "_wire.credentials": (
                "AuthChallenge",
                "AuthHook",
            ),
        },
    )

__all__ = [
    "AuthChallenge",
    "AuthHook",
    "Callbacks",
    "CardRemote",
    "Channel",
    "Clock",
    "Completion",
    "Connecting",
    "ConnectionState",
    "ElicitationRequest",
    "ElicitationResult",
    "FoundCards",
    "ListChanged",
    "ListenerDecorator",
    "LoadedSkill",
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
    "ServerCard",
    "ServerProcess",
    "Silent",
    "Skill",
    "SkillFile",
    "SkippedPart",
    "StateChanged",
    "Step",
    "Wire",
    "ask_caller",
    "connect_mcp",
    "find_server_cards",
    "memory_channels",
    "register_transport",
]
