"""Language models behind one Protocol: messages, requests, streams of events.

Knows tools by their definitions only; runs none of them. The root package exports most of its names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.models._anthropic import AnthropicModel
    from toolweave.models._base import (
        Finished,
        Model,
        ModelEvent,
        ModelRequest,
        ModelSettings,
        ProviderTool,
        StreamedText,
        StreamedThinking,
        StreamedToolCall,
        StreamRestarted,
        ToolCallDelta,
        Usage,
        complete,
    )
    from toolweave.models._command import CommandModel
    from toolweave.models._fallback import FallbackModel
    from toolweave.models._messages import (
        AssistantMessage,
        Message,
        ProviderPart,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolMessage,
        ToolOutcome,
        UserMessage,
    )
    from toolweave.models._openai import OpenAICompatibleModel
    from toolweave.models._parse_model import model_from
    from toolweave.models._prices import Price
    from toolweave.models._pydantic_ai import PydanticAIModel
    from toolweave.models._retry import Retry
    from toolweave.models._sampling import SamplingModel
    from toolweave.models._scripted import ScriptedModel, tool_call
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "_anthropic": ("AnthropicModel",),
            "_base": (
                "Finished",
                "Model",
                "ModelEvent",
                "ModelRequest",
                "ModelSettings",
                "ProviderTool",
                "StreamRestarted",
                "StreamedText",
                "StreamedThinking",
                "StreamedToolCall",
                "ToolCallDelta",
                "Usage",
                "complete",
            ),
            "_command": ("CommandModel",),
            "_fallback": ("FallbackModel",),
            "_messages": (
                "AssistantMessage",
                "Message",
                "ProviderPart",
                "TextPart",
                "ThinkingPart",
                "ToolCallPart",
                "ToolMessage",
                "ToolOutcome",
                "UserMessage",
            ),
            "_openai": ("OpenAICompatibleModel",),
            "_parse_model": ("model_from",),
            "_prices": ("Price",),
            "_pydantic_ai": ("PydanticAIModel",),
            "_retry": ("Retry",),
            "_sampling": ("SamplingModel",),
            "_scripted": (
                "ScriptedModel",
                "tool_call",
            ),
        },
    )

__all__ = [
    "AnthropicModel",
    "AssistantMessage",
    "CommandModel",
    "FallbackModel",
    "Finished",
    "Message",
    "Model",
    "ModelEvent",
    "ModelRequest",
    "ModelSettings",
    "OpenAICompatibleModel",
    "Price",
    "ProviderPart",
    "ProviderTool",
    "PydanticAIModel",
    "Retry",
    "SamplingModel",
    "ScriptedModel",
    "StreamRestarted",
    "StreamedText",
    "StreamedThinking",
    "StreamedToolCall",
    "TextPart",
    "ThinkingPart",
    "ToolCallDelta",
    "ToolCallPart",
    "ToolMessage",
    "ToolOutcome",
    "Usage",
    "UserMessage",
    "complete",
    "model_from",
    "tool_call",
]
