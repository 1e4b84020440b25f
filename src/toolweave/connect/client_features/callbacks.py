"""What a server may ask of its client, as values: one set of callbacks, whatever the protocol's era.

Knows no wire: `asked.py` reads the requests and shapes the answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from toolweave.tools.asking import (
    ElicitationResult,
    LogLevel,
    Root,
    RootLike,
    SamplingMessage,
    SamplingResult,
    check_level,
)
from toolweave.tools.spec import ToolSpec

__all__ = [
    "NO_CALLBACKS",
    "Callbacks",
    "ElicitationRequest",
    "ElicitationResult",
    "LogLevel",
    "LogMessage",
    "Root",
    "RootLike",
    "SamplingMessage",
    "SamplingRequest",
    "SamplingResult",
    "check_level",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingRequest:
    """A server asks for a completion by the client's language model (`sampling/createMessage`).

    Attributes:
        server: The name of the server that asks, as the config calls it.
        max_tokens: The most tokens to make, as the server wishes; None when it does not say.
        tools: Tools that the model may use; only sent when `Callbacks.sampling_tools` is set.
        tool_choice: `"auto"`, `"required"` or `"none"`.
        raw: The parameters as they came, with model preferences, stop sequences and what else there is.
    """

    server: str
    messages: tuple[SamplingMessage, ...]
    system_prompt: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElicitationRequest:
    """A server asks the user something (`elicitation/create`).

    Attributes:
        server: The name of the server that asks; show it, so that the user knows who wants the answer.
        mode: `"form"`: fill in `schema`. `"url"`: let the user visit `url`, which nobody may open unasked.
        schema: JSON Schema of the form: an object of primitive properties.
        elicitation_id: Names the visit in `notifications/elicitation/complete` (2025-11-25).
    """

    server: str
    mode: Literal["form", "url"]
    message: str
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    url: str | None = None
    elicitation_id: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMessage:
    """One log message of a server (`notifications/message`); untrusted.

    Attributes:
        logger: The name of the server's logger, or None.
        data: What is logged: a text or any other JSON value.
    """

    server: str
    level: str
    logger: str | None = None
    data: Any = None  # any JSON value


SamplingAnswer: TypeAlias = SamplingResult | str | None
ElicitationAnswer: TypeAlias = ElicitationResult | Mapping[str, Any] | None
RootsAnswer: TypeAlias = Sequence[RootLike]


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """What this client does for a server that asks; what is None is not offered, and refused politely.

    Each callable may be sync or async. One that raises costs only the request it was called for.
    Nothing bounds how long a callback takes; the call on whose behalf it runs does not time out meanwhile.

    Attributes:
        sampling: Takes a `SamplingRequest`; returns a `SamplingResult`, a plain text, or None to refuse.
        elicitation: Takes an `ElicitationRequest`; returns an `ElicitationResult`, a mapping (accepted,
            with that content) or None (declined).
        roots: The roots, or a callable without arguments that returns them.
        logging: Takes each `LogMessage`, in order.
        sampling_tools: Say that `sampling` heeds `SamplingRequest.tools`.
        log_level: The least severity to send. None leaves it to legacy servers and is `"info"` for
            modern ones, which send nothing unasked.
    """

    sampling: Callable[[SamplingRequest], SamplingAnswer | Awaitable[SamplingAnswer]] | None = None
    elicitation: Callable[[ElicitationRequest], ElicitationAnswer | Awaitable[ElicitationAnswer]] | None = None
    roots: RootsAnswer | Callable[[], RootsAnswer | Awaitable[RootsAnswer]] | None = None
    logging: Callable[[LogMessage], Awaitable[None] | None] | None = None
    sampling_tools: bool = False
    log_level: LogLevel | None = None

    def __post_init__(self) -> None:
        for name in ("sampling", "elicitation", "logging"):
            if not (getattr(self, name) is None or callable(getattr(self, name))):
                raise TypeError(f"{name} must be callable or None, not {type(getattr(self, name)).__name__}")
        if isinstance(self.roots, (str, Path, Root)):
            raise TypeError("roots must be a sequence of roots, a callable or None; put the one root in a list")
        if self.log_level is not None:
            check_level(self.log_level)

    @property
    def may_answer(self) -> bool:
        """Whether there is any request of a server that is not refused."""
        return self.sampling is not None or self.elicitation is not None or self.roots is not None


NO_CALLBACKS = Callbacks()
"""Offers nothing."""
