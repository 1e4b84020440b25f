"""Shortening a conversation for a model: the type of the hook, and the default for one that is too long. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import accumulate
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
    """Return the newest part of a conversation, at most a share of it by its length.

    The part begins with a user's message, and every result stays with its call. If one run alone is too long, its first
    turns are left out between the user's question and its newest turns. If no part is short enough, the shortest one is
    returned.

    Args:
        messages: The conversation, oldest first.
        keep: The share, between 0 and 1.

    Raises:
        ValueError: The share is not between 0 and 1.
    """
    if not 0 < keep < 1:
        raise ValueError(f"keep is a share between 0 and 1, not {keep!r}")
    size_before = list(accumulate(map(_size, messages), initial=0))
    total = size_before[-1]
    shortest: Sequence[Message] = messages
    # Each part is shorter than the one before it, so the first that fits is the longest that does.
    for question, start in _cuts(messages):
        shortest = [*question, *messages[start:]]
        if total - size_before[start] + sum(map(_size, question)) <= total * keep:
            break
    return shortest


def _cuts(messages: Sequence[Message]) -> Iterator[tuple[Sequence[UserMessage], int]]:
    """Yield where a conversation may be cut, from its beginning: the question to keep, and the first message after it.

    A question is kept if the messages begin with a turn of the model. No cut is before the results of a turn.
    """
    question: UserMessage | None = None
    asked_at = 0
    for index, message in enumerate(messages):
        if isinstance(message, UserMessage):
            question = message
            asked_at = index
            if index > 0:
                yield (), index
        elif isinstance(message, AssistantMessage) and question is not None and index > asked_at + 1:
            yield (question,), index


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
