"""Shortening a conversation for a model: the type of the hook, and the default for one that is too long. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from toolweave.models import (
    AssistantMessage,
    Message,
    ProviderPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from toolweave.protocol.content import ContentBlock, EmbeddedResource, TextContent

History: TypeAlias = Callable[[Sequence[Message]], Sequence[Message] | Awaitable[Sequence[Message]]]
"""A function that is called with the whole conversation before each turn and returns the messages to send."""

_MEDIA = 6_000
"""Characters that an image counts as, roughly its tokens."""


def trim_history(messages: Sequence[Message], *, keep: float = 0.5) -> Sequence[Message]:
    """Return the newest part of a conversation, at most this share of it by its length.

    It begins with a user's message, and every result stays with its call: the newest turns of a long run follow the
    user's question that the run is about. A conversation that cannot be shortened is returned as is.
    """
    if not 0 < keep < 1:
        raise ValueError(f"keep is a share between 0 and 1, not {keep!r}")
    sizes = list(map(_size, messages))
    most = sum(sizes) * keep
    left = sum(sizes)
    shortest: Sequence[Message] = messages
    asked: int | None = None
    for at, message in enumerate(messages):
        if at and not isinstance(message, ToolMessage):
            # Such a cut separates no result from its call.
            if isinstance(message, AssistantMessage) and asked is not None:
                head = messages[asked : asked + 1]
            else:
                head = ()
            kept = left + sum(map(_size, head))
            if at > len(head) and (head or isinstance(message, UserMessage)):
                shortest = [*head, *messages[at:]]
                if kept <= most:
                    break
        if isinstance(message, UserMessage):
            asked = at
        left -= sizes[at]
    return shortest


def _size(message: Message) -> int:
    match message:
        case UserMessage():
            return _blocks(message.content)
        case AssistantMessage():
            return sum(map(_part, message.parts))
        case ToolMessage():
            return sum(_blocks(one.result.content) for one in message.outcomes)


def _blocks(blocks: Sequence[ContentBlock]) -> int:
    texts = (TextContent, EmbeddedResource)
    return sum(len(one.text) if isinstance(one, texts) and one.text is not None else _MEDIA for one in blocks)


def _part(part: TextPart | ThinkingPart | ToolCallPart | ProviderPart) -> int:
    if isinstance(part, (TextPart, ThinkingPart)):
        return len(part.text)
    return len(str(part.arguments if isinstance(part, ToolCallPart) else part.raw))
