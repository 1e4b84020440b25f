"""The messages of a conversation: of a user, a model and tools.

Knows no provider and no loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from toolweave._json_types import JsonObject, new_object
from toolweave.protocol.content import ContentBlock, TextContent
from toolweave.tools import ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """A message of the user: blocks of text, images, files."""

    content: tuple[ContentBlock, ...]

    @classmethod
    def of(cls, value: str | ContentBlock | Sequence[str | ContentBlock]) -> UserMessage:
        """Return a message of a text, a block, or a sequence of these."""
        if isinstance(value, str) or not isinstance(value, Sequence):
            items = [value]
        else:
            items = value
        return cls(content=tuple(TextContent(text=one) if isinstance(one, str) else one for one in items))

    @property
    def text(self) -> str:
        """The blocks as text, one under the other."""
        return "\n".join(block.render() for block in self.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """A text of the model.

    Attributes:
        extra: Members that its provider added to it; they are sent back to that provider only.
        provider: The provider of the members in `extra`.
    """

    text: str
    extra: JsonObject = field(default_factory=new_object)
    provider: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingPart:
    """A thought of the model; it is sent back unchanged to the provider it came from, and to no other.

    Attributes:
        raw: The provider's own form of it, signature included, or None.
        provider: The provider of the form `raw`, such as `"anthropic"`.
    """

    text: str
    raw: JsonObject | None = None
    provider: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallPart:
    """A tool call of the model.

    Attributes:
        id: The provider's id of the call, or one of ours where it gave none; unique in the conversation.
        name: The tool's exposed name, as the agent knows it; models map it to and from the provider's.
        arguments: The arguments object; empty when the model sent no JSON object.
        malformed: The text that the model sent instead of a JSON object, or None.
        cut: Whether the turn ended before the call was written to its end; such a call is never carried out.
        extra: Members that its provider added to it, such as a signature; they are sent back to that provider only.
        provider: The provider of the members in `extra`.
    """

    id: str
    name: str
    arguments: JsonObject = field(default_factory=new_object)
    malformed: str | None = None
    cut: bool = False
    extra: JsonObject = field(default_factory=new_object)
    provider: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderPart:
    """A step of a provider's own tool (search, code), in its own form; it is sent back to that provider only."""

    provider: str
    raw: JsonObject


AssistantPart: TypeAlias = TextPart | ThinkingPart | ToolCallPart | ProviderPart


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    """One turn of the model, its parts in the order in which they came."""

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
    """The outcome of one tool call.

    Attributes:
        call_id: The `ToolCallPart.id` that it answers.
        name: The tool's exposed name.
    """

    call_id: str
    name: str
    result: ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMessage:
    """The outcomes of all tool calls of one turn, in the order of the calls."""

    outcomes: tuple[ToolOutcome, ...]


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage
"""One message of a conversation; the system prompt is part of the request instead."""
