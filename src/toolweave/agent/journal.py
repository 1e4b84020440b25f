"""The seam for what outlives a run: what of it is finished, told after each turn and each call, asked for before.

Holds the Protocol and the journal that keeps nothing; knows no store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, Protocol, TypeAlias

from toolweave.agent.events import RunResult
from toolweave.errors import ErrorKind, ToolError
from toolweave.models.base import Finished, Usage
from toolweave.models.messages import Message, ToolCallPart
from toolweave.tools.result import ToolResult
from toolweave.tools.spec import ToolSpec

__all__ = ["ASK", "NO_JOURNAL", "Ask", "Journal", "OpenJournal", "Recorded", "RunStart", "outcome_unknown"]


class Ask(Enum):
    """The type of `ASK`."""

    ASK = "ask"


ASK: Literal[Ask.ASK] = Ask.ASK
"""A call had begun when its process died, nobody knows whether it was carried out, and a person is to decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """How a run begins.

    Attributes:
        messages: The whole conversation: the session's so far and what was sent now.
        sent: How many of them, at the end, were sent now.
        depth: How many runs it is nested in.
        attended: Whether anybody is there to allow calls.
        output: What its answer has to be when that was given to this one run: the `form` of an `Output`.
        meta: What its tools see as `CallContext.meta`, JSON.
        on_unknown: What it was submitted with for calls whose outcome nobody knows, an `OnUnknown`; None is the
            agent's own.
        turns: How many of its turns are recorded; they are taken as they are, whatever its limits are now.
        allowed: The digests of the tools that were allowed to it alone.
    """

    run_id: str
    agent: str
    messages: tuple[Message, ...]
    sent: int
    session: str | None = None
    parent_id: str | None = None
    depth: int = 0
    attended: bool = True
    output: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    on_unknown: Literal["error", "ask", "rerun"] | None = None
    turns: int = 0
    allowed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What is recorded of a finished call.

    Attributes:
        below: What runs took that had ended below this one since the call before was recorded, by their ids.
    """

    result: ToolResult
    below: Mapping[str, Usage] = field(default_factory=dict[str, Usage])


class Journal(Protocol):
    """The journal of one run. A step is a turn of the model, from 1.

    A run asks before it does anything and tells when it is done: what is answered is replayed and not done again.
    What a method raises fails the run.
    """

    def held(self, cancel: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """Return what the run is inside of from before `started` until after `finished`.

        There a run can be kept from going on in two processes: entering raises `RunError` when it does already, and
        the body is ended by one when it is lost. `cancel` cancels the run, when somebody elsewhere asks for that.
        """
        ...

    async def started(self, start: RunStart) -> RunStart:
        """Take note of a run and return how it began: as it was recorded, when it runs again."""
        ...

    async def turn(self, step: int) -> Finished | None:
        """Return the model's turn of a step that is recorded, or None."""
        ...

    async def turn_finished(self, step: int, turn: Finished) -> None:
        """Record a turn of the model."""
        ...

    async def allowed(self) -> Collection[str]:
        """Return the digests of the tools that were allowed to the agent for good."""
        ...

    async def allow(self, tool: ToolSpec, *, for_good: bool) -> None:
        """Record that a tool was allowed as it is defined now: to the agent for good, or to the run."""
        ...

    async def call(self, step: int, call: ToolCallPart, tool: ToolSpec | None) -> Recorded | Ask | None:
        """Return what is recorded of a call, or None to have it made now.

        For a call that had begun when its process died, and that must not be made twice, the answer is an error result
        (`outcome_unknown`), or `ASK`. The tool is None where there is none of this name (any more).
        """
        ...

    async def call_started(self, step: int, call: ToolCallPart, tool: ToolSpec) -> None:
        """Take note that a call, allowed by now, reaches its tool; a journal that trusts every tool need not."""
        ...

    async def call_finished(self, step: int, call: ToolCallPart, recorded: Recorded) -> None:
        """Record the whole result of a call; of those of one turn in the order in which they end."""
        ...

    async def finished(self, result: RunResult) -> None:
        """Record how the run ended; not told when the process or the agent is shut down while it goes on."""
        ...


OpenJournal: TypeAlias = Callable[[str], Journal]
"""Returns the journal of the run of this id, new or not."""


class _NoJournal:
    """Keeps nothing."""

    def held(self, cancel: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def started(self, start: RunStart) -> RunStart:
        return start

    async def turn(self, step: int) -> Finished | None:
        return None

    async def turn_finished(self, step: int, turn: Finished) -> None:
        return None

    async def allowed(self) -> Collection[str]:
        return ()

    async def allow(self, tool: ToolSpec, *, for_good: bool) -> None:
        return None

    async def call(self, step: int, call: ToolCallPart, tool: ToolSpec | None) -> Recorded | Ask | None:
        return None

    async def call_started(self, step: int, call: ToolCallPart, tool: ToolSpec) -> None:
        return None

    async def call_finished(self, step: int, call: ToolCallPart, recorded: Recorded) -> None:
        return None

    async def finished(self, result: RunResult) -> None:
        return None


NO_JOURNAL: Journal = _NoJournal()
"""The journal of runs that need not outlive their process."""


def outcome_unknown(tool: str) -> ToolResult:
    """Return what the model reads of a call of which nobody knows whether it was carried out."""
    message = (
        f"the outcome of this call of tool {tool!r} is unknown: it had begun when the process that made it ended. "
        "It may have been carried out: look whether it was before calling it again"
    )
    return ToolResult.failure(ToolError(message, kind=ErrorKind.OUTCOME_UNKNOWN))
