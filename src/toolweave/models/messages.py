"""A conversation as values: what a user, a model and tools said, and the same as JSON for a store.

Knows no provider and no loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from toolweave.protocol.content import ContentBlock, TextContent
from toolweave.tools.result import ToolResult

__all__ = [
    "AssistantMessage",
    "AssistantPart",
    "Message",
    "ProviderPart",
    "TextPart",
    "ThinkingPart",
    "ToolCallPart",
    "ToolMessage",
    "ToolOutcome",
    "UserMessage",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """What the user says: blocks of text, images, files."""

    content: tuple[ContentBlock, ...]

    @classmethod
    def of(cls, value: str | ContentBlock | Sequence[str | ContentBlock]) -> UserMessage:
        """Return a message of a text, a block, or a sequence of these."""
        items = [value] if isinstance(value, str) or not isinstance(value, Sequence) else value
        return cls(content=tuple(TextContent(text=one) if isinstance(one, str) else one for one in items))

    @property
    def text(self) -> str:
        """The blocks as text, one under the other."""
        return "\n".join(block.render() for block in self.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """A text of the model.

    Attributes:
        extra: Members that its provider added to it; they go back to that provider only.
        provider: Whose members `extra` holds.
    """

    text: str
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    provider: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingPart:
    """What the model thought aloud; goes back to the provider it came from as it came, and to no other.

    Attributes:
        raw: The provider's own form of it, signature included; None when there is none.
        provider: Whose form `raw` is, such as `"anthropic"`.
    """

    text: str
    raw: Mapping[str, Any] | None = None
    provider: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallPart:
    """The model calls a tool.

    Attributes:
        id: The provider's id of the call, or one of ours where it gave none; unique in the conversation.
        name: The tool's exposed name, as the agent knows it; models map it to and from the provider's.
        arguments: The arguments object; empty when what came was no JSON object.
        malformed: What came instead of a JSON object, or None.
        cut: Whether the turn ended before the call was written to its end; such a call is never carried out.
        extra: Members that its provider added to it (a signature, who calls); they go back to that provider only.
        provider: Whose members `extra` holds.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    malformed: str | None = None
    cut: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    provider: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderPart:
    """What a provider's own tool did (search, code), in its own form; goes back to that provider only."""

    provider: str
    raw: Mapping[str, Any]


AssistantPart: TypeAlias = TextPart | ThinkingPart | ToolCallPart | ProviderPart


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    """One turn of the model, in the order in which it came."""

    parts: tuple[AssistantPart, ...] = ()

    @property
    def text(self) -> str:
        """Its texts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The tools it calls, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutcome:
    """What came of one tool call.

    Attributes:
        call_id: The `ToolCallPart.id` that it answers.
        name: The tool's exposed name.
    """

    call_id: str
    name: str
    result: ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMessage:
    """What came of all tool calls of one turn, in the order of the calls."""

    outcomes: tuple[ToolOutcome, ...]


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage
"""One message of a conversation; the system prompt is no message, it goes with the request."""
