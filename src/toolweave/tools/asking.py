"""What a client answers when a handler asks it something, and the way there, whatever the era.

The values of elicitation, sampling, roots and logging, for both ends of a connection. The questions themselves are
`questions.py`; knows no wire but the JSON of a message's content.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast, get_args

from toolweave.protocol.content import ContentBlock, block_json, content_block

__all__ = [
    "ElicitationResult",
    "Elicited",
    "LogLevel",
    "Root",
    "RootLike",
    "SamplingMessage",
    "SamplingResult",
    "check_level",
    "content_json",
]

FormT = TypeVar("FormT")

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""Severities of RFC 5424, the least severe first."""


def check_level(level: str) -> None:
    """Refuse what is no severity.

    Raises:
        ValueError: There is no such level.
    """
    if level not in get_args(LogLevel):
        raise ValueError(f"no log level {level!r}; there are {', '.join(get_args(LogLevel))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingMessage:
    """One message of a conversation that a language model continues; untrusted when it came from a server.

    Attributes:
        role: `"user"` or `"assistant"`.
        content: Its blocks; tool use and tool results are `UnknownContent` with the whole block in `raw`.
    """

    role: str
    content: tuple[ContentBlock, ...]
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def text(self) -> str:
        """The blocks as text, one under the other."""
        return "\n".join(block.render() for block in self.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingResult:
    """What the language model said.

    Attributes:
        content: A text, a content block, a block as a JSON object, or a sequence of blocks; always a tuple of
            blocks where a handler receives it.
        model: The name of the model that said it.
        stop_reason: `"endTurn"`, `"stopSequence"`, `"maxTokens"`, `"toolUse"` or the provider's own word.
    """

    content: str | ContentBlock | Mapping[str, Any] | Sequence[ContentBlock | Mapping[str, Any]]
    model: str = "unknown"
    stop_reason: str | None = "endTurn"
    role: str = "assistant"

    @property
    def text(self) -> str:
        """What was said as text, one block under the other."""
        written = content_json(self.content)
        blocks = cast("list[Any]", written if isinstance(written, list) else [written])
        return "\n".join(content_block(one).render() for one in blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElicitationResult:
    """What the user decided; `content` holds the values of an accepted form."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] | None = None

    @property
    def accepted(self) -> bool:
        """Whether the user said yes."""
        return self.action == "accept"

    @classmethod
    def accept(cls, content: Mapping[str, Any] | None = None) -> ElicitationResult:
        """Return the user's consent, with the values of the form if it is one."""
        return cls(action="accept", content=content)

    @classmethod
    def decline(cls) -> ElicitationResult:
        """Return the user's clear no."""
        return cls(action="decline")

    @classmethod
    def cancel(cls) -> ElicitationResult:
        """Return that the user put the question away without an answer."""
        return cls(action="cancel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Elicited(ElicitationResult, Generic[FormT]):
    """What the user decided on a form made of a model; `value` is an instance of it when the form was accepted."""

    value: FormT | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A directory or file that the server may work on; `uri` is a `file://` URI."""

    uri: str
    name: str | None = None

    @classmethod
    def of(cls, value: RootLike) -> Root:
        """Return a root for a path or a URI; a `Root` as it is."""
        if isinstance(value, Root):
            return value
        if isinstance(value, str) and "://" in value:
            return cls(uri=value)
        path = Path(value).absolute()
        return cls(uri=path.as_uri(), name=path.name or None)


RootLike: TypeAlias = Root | str | Path
"""A root, a URI or a path."""


def content_json(content: Any) -> Any:
    """Return the content of a message as JSON: one block as an object, more of them as an array."""
    if isinstance(content, str):
        return {"type": "text", "text": content}
    if isinstance(content, Sequence):
        blocks = [content_json(item) for item in cast("Sequence[Any]", content)]
        return blocks[0] if len(blocks) == 1 else blocks  # older revisions know no array
    if isinstance(content, Mapping):
        return dict(cast("Mapping[str, Any]", content))
    return block_json(content)
