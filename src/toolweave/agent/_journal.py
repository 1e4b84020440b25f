"""The journal of a run: finished turns and calls are recorded after, and looked up before, each of them.

Holds the base class, which records nothing; knows no store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypeAlias

from toolweave._json_types import JsonObject, new_object
from toolweave.agent._events import RunResult
from toolweave.agent._questions import NOTHING_ASKED, Asked
from toolweave.agent.approval import Approval, Attended, StoredConfirm, WaitingCall
from toolweave.errors import ErrorKind, ToolError
from toolweave.models import Finished, Message, ToolCallPart, Usage
from toolweave.tools import ToolResult, ToolSpec

OnUnknown: TypeAlias = Literal["error", "ask", "rerun"]
"""Policy for a call that had started when its process died, and that must not be repeated.

`"error"`: the model reads that its outcome is unknown; `"ask"`: a person is asked whether to repeat it, and if not the
model reads that; `"rerun"`: it is repeated.
"""


class Ask(Enum):
    """The type of `ASK`."""

    ASK = "ask"


ASK: Literal[Ask.ASK] = Ask.ASK
"""A call had started when its process died, its outcome is unknown, and a person is to decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """The start of a run: its messages and options.

    Attributes:
        messages: The whole conversation: the session's so far and the new messages.
        sent: Number of messages at the end that were sent now.
        depth: Nesting depth: the number of runs above it.
        attended: Whether a person can approve calls, now or later.
        output: The `form` of an `Output` that was given to this run alone, or None.
        meta: `CallContext.meta` of its tools, as JSON.
        on_unknown: The submission's policy for calls with an unknown outcome, an `OnUnknown`; None is the agent's own.
        turns: Number of its recorded turns; they are replayed regardless of its limits.
        allowed: The digests of the tools that were allowed to it alone.
        confirm_above: The strictest policy of the runs above it, for a process that does not have them.
    """

    run_id: str
    agent: str
    messages: tuple[Message, ...]
    sent: int
    session: str | None = None
    parent_id: str | None = None
    depth: int = 0
    attended: Attended = True
    output: JsonObject | None = None
    meta: JsonObject = field(default_factory=new_object)
    on_unknown: OnUnknown | None = None
    turns: int = 0
    allowed: frozenset[str] = frozenset()
    confirm_above: StoredConfirm = "never"

    @property
    def new_messages(self) -> tuple[Message, ...]:
        """The messages that were sent now."""
        return self.messages[len(self.messages) - self.sent :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The record of a finished call.

    Attributes:
        below: Usage of child runs that ended since the previous call was recorded, by run id.
    """

    result: ToolResult
    below: Mapping[str, Usage] = field(default_factory=dict[str, Usage])


class Journal:
    """The journal of one run; this one records nothing. A step is a turn of the model, from 1.

    A run looks each turn and call up before it makes it, and records it afterwards: a recorded one is replayed. An
    exception of any method fails the run.
    """

    def held(
        self, cancel: Callable[[], None], *, sent: Sequence[Message] = (), session: str | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Return a context manager that is entered before `started` and exited after `finished`.

        It may hold a lease, so that only one process executes the run: entering raises `RunError` when another process
        has it, and so does the body when the lease is lost.

        Args:
            cancel: Cancels the run, at the request of another process.
            sent: The messages that are sent now. A run that was started with others is not opened.
            session: The session of the run.
        """
        return nullcontext()

    async def started(self, start: RunStart) -> RunStart:
        """Record the start of a run and return it; a resumed run gets its recorded start."""
        return start

    async def turn(self, step: int) -> Finished | None:
        """Return the recorded turn of a step, or None."""
        return None

    async def turn_finished(self, step: int, turn: Finished) -> None:
        """Record a turn of the model."""

    async def allowed(self) -> Collection[str]:
        """Return the digests of the tools that are permanently allowed to the agent."""
        return ()

    async def allow(self, tool: ToolSpec, *, persistent: bool) -> None:
        """Record that a tool was allowed by its present definition: permanently to the agent, or to the run."""

    async def call(self, step: int, call: ToolCallPart, tool: ToolSpec | None) -> Recorded | Ask | None:
        """Return the record of a call, or None to make it now.

        A call that had started when its process died, and that must not be repeated, gets an error result
        (`outcome_unknown`), or `ASK`. The tool is None if its name is not known (any more).
        """
        return None

    async def answer(self, call: ToolCallPart, tool: ToolSpec) -> Approval | None:
        """Return a person's answer to a call that waited for it, given for the present definition of the tool."""
        return None

    async def asked(self, step: int, call: ToolCallPart, tool: ToolSpec) -> Asked:
        """Return the questions of the tool's server in a call so far."""
        return NOTHING_ASKED

    async def call_started(self, step: int, call: ToolCallPart, tool: ToolSpec) -> None:
        """Record that an allowed call is about to reach its tool; a journal that may repeat every call need not."""

    async def call_finished(self, step: int, call: ToolCallPart, recorded: Recorded) -> None:
        """Record the whole result of a call; the calls of one turn come in the order in which they end."""

    async def waiting(self, result: RunResult, calls: Sequence[WaitingCall]) -> None:
        """Record that the run waits for a person's answers to these calls; all others of the turn are recorded.

        A call that was begun and has asked (`WaitingCall.question`) is made again with `asked` when the run is resumed.
        """

    async def finished(self, result: RunResult) -> None:
        """Record the end of the run; not called when the process or the agent is shut down during the run."""


OpenJournal: TypeAlias = Callable[[str], Journal]
"""Function that returns the journal of a run by its id, whether the run is new or not."""


def outcome_unknown(tool: str) -> ToolResult:
    """Return the error result of a call with an unknown outcome."""
    message = (
        f"the outcome of this call of tool {tool!r} is unknown: it had begun when the process that made it ended. "
        "It may have been carried out: look whether it was before calling it again"
    )
    return ToolResult.failure(ToolError(message, kind=ErrorKind.OUTCOME_UNKNOWN))
