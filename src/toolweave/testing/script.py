"""What a test made up for a server in memory: scripted answers, refusals, silences and crashes, by method.

Knows nothing of how messages travel.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from toolweave.protocol import methods

__all__ = ["Answer", "Reaction", "Received", "Script"]

Answer: TypeAlias = Mapping[str, Any] | Callable[[Mapping[str, Any]], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
"""A result as it goes over the wire, or a function, plain or async, from a request's params to one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One message that a client sent.

    Attributes:
        method: Such as `"tools/call"`.
        params: As they came, `_meta` included.
        id: The request's id; None for a notification.
        conversation: In which conversation it came; the first is 1.
    """

    method: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    id: int | str | None = None
    conversation: int = 1

    @property
    def tool(self) -> str | None:
        """The name of the tool that is called, or None."""
        name = self.params.get("name")
        return name if self.method == methods.TOOLS_CALL and isinstance(name, str) else None


@dataclass(slots=True, kw_only=True)
class Reaction:
    """What to do with requests of a method, in place of answering them.

    Attributes:
        tool: Only calls of this tool; None is all of them.
        left: For how many requests; None is for all to come.
        how: `"answer"`, `"refuse"` with `error`, `"hang"` or `"crash"`.
    """

    method: str
    how: Literal["answer", "refuse", "hang", "crash"]
    tool: str | None = None
    left: int | None = 1
    answer: Answer | None = None
    error: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if self.left is not None and self.left < 1:
            raise ValueError(f"times must be at least 1, or None for always, not {self.left!r}")

    def fits(self, message: Received) -> bool:
        """Tell whether this is about the message."""
        return message.method == self.method and self.tool in (None, message.tool)


class Script:
    """The reactions of one server: those for a number of requests in their order, then the newest of the others."""

    def __init__(self) -> None:
        self._limited: list[Reaction] = []
        self._lasting: list[Reaction] = []

    def add(self, reaction: Reaction) -> None:
        """Add a reaction."""
        (self._lasting if reaction.left is None else self._limited).append(reaction)

    def next_for(self, message: Received) -> Reaction | None:
        """Return what the test wants to happen to a request, counted as used, or None."""
        for reaction in self._limited:
            if reaction.fits(message):
                assert reaction.left is not None
                reaction.left -= 1
                if not reaction.left:
                    self._limited.remove(reaction)
                return reaction
        return next((reaction for reaction in reversed(self._lasting) if reaction.fits(message)), None)
