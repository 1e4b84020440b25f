"""The events and the result of a run. Values only; knows no loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeAlias, TypeVar

from toolweave.errors import ModelError, RunError
from toolweave.models import Message, ToolCallPart, Usage
from toolweave.protocol.client_requests import ElicitationRequest
from toolweave.tools import Progress, ToolResult, ToolSpec

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultingTypeVar  # PEP 696, in `typing` from 3.13 on

    OutT_co = DefaultingTypeVar("OutT_co", default=Any, covariant=True)
else:
    OutT_co = TypeVar("OutT_co", covariant=True)

RunStatus: TypeAlias = Literal["new", "queued", "running", "waiting", "completed", "stopped", "cancelled", "failed"]
"""The status of a run; the last four are final.

`"waiting"`: it has ended for now, and continues once a person has answered (`attended="later"`); `"stopped"` is a
limit, or a model that did not continue.
"""

StopReason: TypeAlias = Literal[
    "end",
    "client_tools",
    "waiting",
    "max_steps",
    "max_tokens",
    "token_limit",
    "cost_limit",
    "time_limit",
    "tool_call_limit",
    "refusal",
    "malformed_call",
    "empty_answer",
    "other",
    "tool_failures",
    "invalid_output",
    "cancelled",
    "model_error",
    "transport_error",
    "error",
]
"""The reason for the end of a run.

`"end"`: the model has answered; `"client_tools"`: it waits for tools that the caller runs itself (`pending`);
`"waiting"`: calls wait for a person's approval, or for answers to questions of their servers (`pending`);
`"max_tokens"`: the model's own bound on one turn; the `_limit`s and `"max_steps"`: those of `Limits` and the agent;
`"malformed_call"`, `"empty_answer"`: the model did so again and again (`Limits.turn_retries`); `"other"`: the provider
gave a reason that this version does not know (`RunResult.stop_detail`); `"tool_failures"`: a tool failed too often in a
row; `"invalid_output"`: the answer never fitted `output_type`; `"error"`: code around the run raised.
"""


# Of whatever type: a run that did not complete has none.
_NO_OUTPUT: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult(Generic[OutT_co]):
    """The result of a run.

    Attributes:
        text: The last text of the model.
        output: The validated answer when the agent has an `output_type`, else None.
        messages: The whole conversation: the earlier messages, those that were sent, and those that followed.
        usage: Token usage of all turns, those of agents that ran as tools included.
        steps: Turns of the model.
        error: The exception that `await run` raises, or None.
        pending: Calls of client tools, for the caller to run and to answer with a `ToolMessage`; or calls that wait for
            a person.
        stop_detail: More about `stop_reason`: the provider's own word for it, or the tool that failed; usually None.
    """

    run_id: str
    text: str = ""
    output: OutT_co = _NO_OUTPUT
    messages: Sequence[Message] = ()
    usage: Usage = field(default_factory=Usage)
    steps: int = 0
    stop_reason: StopReason = "end"
    status: RunStatus = "completed"
    error: Exception | None = None
    pending: tuple[ToolCallPart, ...] = ()
    stop_detail: str | None = None

    @property
    def why(self) -> str:
        """The human-readable reason for its end."""
        if self.stop_detail is None:
            return self.stop_reason
        return f"{self.stop_reason} ({self.stop_detail})"

    def check(self) -> Self:
        """Return the result if the run completed.

        Raises:
            RunError: It ended before the model was done.
            ModelError, ToolError: The error that made it fail.
        """
        if self.error is not None:
            raise self.error
        if self.status != "completed":
            raise RunError(f"ended before it was done: {self.why}", run_id=self.run_id, reason=self.stop_reason)
        return self

    def _repr_html_(self) -> str:
        from toolweave.tools._notebook import run_html  # for notebooks alone

        if self.stop_reason == "end":
            ended = self.status
        else:
            ended = f"{self.status}: {self.why}"
        tokens = self.usage.input_tokens + self.usage.output_tokens
        facts = [ended, f"{self.steps} steps", f"{tokens:,} tokens", *(f"waits: {one.name}" for one in self.pending)]
        return run_html(self.text, facts, self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base class of the events of a run.

    Attributes:
        run_id: The run that it belongs to; a child's events that concern a person also reach the parent's stream.
        step: Number of the turn of the model, from 1; 0 before the first.
    """

    run_id: str
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Event):
    """The run begins: its session is free and its tools are open."""

    agent: str
    session: str | None = None
    parent_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted(Event):
    """A model request starts; `tools` is the number of tools in it."""

    tools: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(Event):
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingDelta(Event):
    """A piece of thought."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted(Event):
    """The model begins to write a call; its arguments follow as `ToolArguments`."""

    call: ToolCallPart


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolArguments(Event):
    """A piece of a call's arguments, as JSON text."""

    call_id: str
    delta: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted(Event):
    """A tool runs."""

    call: ToolCallPart
    tool: ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgress(Event):
    """A running tool reports progress."""

    call: ToolCallPart
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished(Event):
    """A call is answered; `result` is whole, though the model may read a truncated one (`ResultPolicy`)."""

    call: ToolCallPart
    result: ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequested(Event):
    """A person has to allow a call: answer with `run.approve(event)` or `run.deny(event)`."""

    call: ToolCallPart
    tool: ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalGiven(Event):
    """A call that had to be allowed was decided on."""

    call: ToolCallPart
    approved: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRequested(Event):
    """A server asks the user in the middle of a call: answer with `run.answer(event, ...)`.

    Attributes:
        question_id: The id of the question.
        request: The question: the server's unchecked text.
    """

    call: ToolCallPart
    tool: ToolSpec
    question_id: str
    request: ElicitationRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class InputGiven(Event):
    """A server's question was answered, or was dismissed as no answer came in time."""

    call: ToolCallPart
    question_id: str
    action: Literal["accept", "decline", "cancel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReported(Event):
    """Token usage of this turn, and of the run so far."""

    usage: Usage
    total: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRestarted(Event):
    """The model's turn broke off and is requested again: the text, thoughts and calls of this step so far are void."""

    error: ModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailed(Event):
    """The model could not answer; the run ends."""

    error: ModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStarted(Event):
    """A tool of this run started a run of another agent."""

    child_id: str
    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildFinished(Event):
    """A run that a tool of this run started has ended."""

    child_id: str
    result: RunResult


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished(Event):
    """The run has ended; always the last event."""

    result: RunResult
