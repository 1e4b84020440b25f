"""The next step of a run, as a pure function of its state. Asks no model, runs no tool, knows no clock."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from toolweave.agent._events import StopReason
from toolweave.agent._limits import Limits, passed
from toolweave.agent._loop.usage import ChildUsage
from toolweave.agent._output import Output
from toolweave.errors import ErrorKind, ToolError
from toolweave.models import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelSettings,
    ProviderPart,
    ProviderTool,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    Usage,
    UserMessage,
)
from toolweave.models import _base as base
from toolweave.tools import ToolResult, ToolSpec


@dataclass(slots=True, kw_only=True)
class RunState:
    """The state of a run.

    Attributes:
        messages: The conversation, oldest first.
        steps: Turns of the model so far.
        stop: Stop reason of the last turn; None before the first.
        usage: Token usage of the run's turns, without child runs.
        below: Token usage of its child runs.
        tool_calls: Calls made so far.
        results: Results of the calls of the last turn, by call id, in the order in which they ended.
        repairs: Number of times that the answer was sent back because it did not validate.
        detail: The provider's own stop reason of the last turn, if it is an unusual one.
        wasted: Number of useless turns in a row, up to the last.
        failing: Number of turns in a row in which every call of a tool has failed, by tool.
    """

    messages: list[Message]
    steps: int = 0
    stop: base.StopReason | None = None
    usage: Usage = field(default_factory=Usage)
    below: ChildUsage = field(default_factory=ChildUsage)
    tool_calls: int = 0
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    repairs: int = 0
    detail: str | None = None
    wasted: int = 0
    failing: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def total(self) -> Usage:
        """Token usage of the run's turns and of its child runs."""
        return self.usage + self.below.usage


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRules:
    """Settings that do not change during a run."""

    system: str | None = None
    max_steps: int = 20
    limits: Limits = field(default_factory=Limits)
    settings: ModelSettings = field(default_factory=ModelSettings)
    output: Output | None = None

    @property
    def unbounded(self) -> RunRules:
        """The same without limits, for the replay of recorded turns."""
        return replace(
            self, max_steps=sys.maxsize, limits=replace(self.limits, tokens=None, cost=None, tool_calls=None)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableTools:
    """The tools that can be called in one turn of the model.

    Attributes:
        tools: Tools that the model sees.
        find: Returns the definition of any tool that can be called, shown or not.
        deferred: Names among `tools` whose definitions the model loads by itself.
        client: Tools that are not run but passed through to the caller, by name.
        provider: Tools that the provider runs itself.
    """

    tools: Sequence[ToolSpec] = ()
    find: Callable[[str], ToolSpec | None] = lambda name: None
    deferred: Collection[str] = ()
    client: Mapping[str, ToolSpec] = field(default_factory=dict[str, ToolSpec])
    provider: Sequence[ProviderTool] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AskModel:
    """Ask the model; first add these messages to the conversation.

    Attributes:
        repair: Whether the added messages report an answer that does not validate.
    """

    request: ModelRequest
    added: tuple[Message, ...] = ()
    repair: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTools:
    """Run the calls: the groups one after the other, those of a group at the same time."""

    groups: tuple[tuple[ToolCallPart, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """End, with the validated output if there is one, and the client's own calls."""

    reason: StopReason
    output: Any = None  # a value of output_type
    pending: tuple[ToolCallPart, ...] = ()
    detail: str | None = None


Step: TypeAlias = AskModel | RunTools | Finish

_EMPTY = "Your last answer was empty. Answer, or call a tool."
_UNREADABLE = "Your last turn was a tool call that could not be read. Write the call again, or answer."


def next_step(state: RunState, rules: RunRules, offer: AvailableTools) -> Step:
    """Return the next step of a run."""
    last = state.messages[-1]
    if isinstance(last, AssistantMessage) and state.steps:
        if last.tool_calls and state.stop != "refusal":
            return _after_calls(state, rules, offer, last.tool_calls)
        if state.stop != "pause":
            return _after_answer(state, rules, offer, last)
    failing = _failing(state, rules.limits)
    if failing is not None:
        return Finish(reason="tool_failures", detail=failing)
    return _ask(state, rules, offer)


def is_wasted(message: AssistantMessage, stop: base.StopReason) -> bool:
    """Return whether a turn is useless: it has neither text nor a call that can be executed."""
    if message.tool_calls:
        return all(call.cut for call in message.tool_calls)
    if stop == "malformed_call":
        return True
    return stop in ("end", "tool_calls") and _is_empty(message)


def cut_off_result(call: ToolCallPart) -> ToolResult:
    """Return the error result of a call that was cut off before its end."""
    text = (
        f"the call of tool {call.name!r} was cut off before it was complete, and was not carried out; "
        "write it again, shorter or in several calls if it was long"
    )
    return ToolResult.failure(ToolError(text, kind=ErrorKind.INVALID_INPUT))


def count_failures(state: RunState, calls: Sequence[ToolCallPart]) -> None:
    """Count the turns in a row in which every call of a tool fails; `calls` are those of the turn that ended."""
    works: dict[str, bool] = {}
    for call in calls:
        # One call of several that succeeds is progress: a model often tries variants in one turn.
        works.setdefault(call.name, False)
        if not state.results[call.id].is_error:
            works[call.name] = True
    for name, is_working in works.items():
        if is_working:
            state.failing[name] = 0
        else:
            state.failing[name] = state.failing.get(name, 0) + 1


def _failing(state: RunState, limits: Limits) -> str | None:
    """Return the tool that has failed too often in a row, or None."""
    if limits.tool_failures is None:
        return None
    for name, turns in state.failing.items():
        if turns >= limits.tool_failures:
            return name
    return None


def _is_empty(message: AssistantMessage) -> bool:
    if message.text.strip():
        return False
    return not any(isinstance(part, ProviderPart) for part in message.parts)


def _ask(
    state: RunState, rules: RunRules, offer: AvailableTools, *added: Message, repair: bool = False
) -> AskModel | Finish:
    reason = passed(rules.limits, state.total, state.steps, rules.max_steps)
    if reason is not None:
        return Finish(reason=reason)
    request = ModelRequest(
        messages=(*state.messages, *added),
        system=rules.system,
        tools=offer.tools,
        deferred=offer.deferred,
        provider_tools=offer.provider,
        output_schema=None if rules.output is None else rules.output.schema,
        settings=rules.settings,
    )
    return AskModel(request=request, added=added, repair=repair)


def _after_calls(state: RunState, rules: RunRules, offer: AvailableTools, calls: tuple[ToolCallPart, ...]) -> Step:
    if state.wasted > rules.limits.turn_retries:
        # Again and again, and each time paid for.
        return Finish(reason="max_tokens" if state.stop == "max_tokens" else "other", detail=state.detail)
    theirs: list[ToolCallPart] = []
    missing: list[ToolCallPart] = []
    for call in calls:
        if call.name in offer.client and not call.cut:
            theirs.append(call)
        elif call.id not in state.results:
            missing.append(call)
    if not missing:
        return Finish(reason="client_tools", pending=tuple(theirs))
    limits = rules.limits
    number = state.tool_calls + len(missing)
    if limits.tool_calls is not None and number > limits.tool_calls:
        return Finish(reason="tool_call_limit")
    if not theirs:
        # a result that no turn may read is not worth its side effects
        reason = passed(limits, state.total, state.steps, rules.max_steps)
        if reason is not None:
            return Finish(reason=reason)
    return RunTools(groups=_grouped(missing, offer))


def _after_answer(state: RunState, rules: RunRules, offer: AvailableTools, answer: AssistantMessage) -> Step:
    if state.stop in ("max_tokens", "refusal", "other"):
        return Finish(reason=state.stop, detail=state.detail)
    if state.stop == "malformed_call":
        complaint = _UNREADABLE
        if state.detail:
            complaint += f"\nThe provider's words: {state.detail}"
        return _again(state, rules, offer, Finish(reason="malformed_call", detail=state.detail), complaint)
    if rules.output is None and _is_empty(answer):
        return _again(state, rules, offer, Finish(reason="empty_answer"), _EMPTY)
    if rules.output is None:
        return Finish(reason="end")
    output, problems = rules.output.read(answer.text)
    if not problems:
        return Finish(reason="end", output=output)
    if state.repairs >= rules.limits.output_retries:
        return Finish(reason="invalid_output")
    return _ask(state, rules, offer, UserMessage.of(rules.output.complaint(problems)), repair=True)


def _again(state: RunState, rules: RunRules, offer: AvailableTools, end: Finish, complaint: str) -> Step:
    """Return the step after a useless turn: ask the model again, or end where the limit is reached."""
    if state.wasted > rules.limits.turn_retries:
        return end
    step = _ask(state, rules, offer, UserMessage.of(complaint))
    # The reason of the useless turn says more than the limit that forbids another one.
    if isinstance(step, Finish):
        return end
    return step


def _grouped(calls: Sequence[ToolCallPart], offer: AvailableTools) -> tuple[tuple[ToolCallPart, ...], ...]:
    """Return the calls in groups, in their order; a call of a sequential tool is a group alone."""
    groups: list[list[ToolCallPart]] = []
    joins = False
    for call in calls:
        tool = offer.find(call.name)
        alone = tool is not None and tool.sequential
        if joins and not alone:
            groups[-1].append(call)
        else:
            groups.append([call])
        joins = not alone
    return tuple(map(tuple, groups))


def outcomes_of(state: RunState, calls: Sequence[ToolCallPart]) -> tuple[ToolOutcome, ...]:
    """Return the outcomes of the answered calls, in the order of the calls."""
    outcomes: list[ToolOutcome] = []
    for call in calls:
        result = state.results.get(call.id)
        if result is not None:
            outcomes.append(ToolOutcome(call_id=call.id, name=call.name, result=result))
    return tuple(outcomes)


def closed(state: RunState, why: str, pending: Sequence[ToolCallPart] = ()) -> None:
    """Answer all open calls with an error result, so that the conversation can continue.

    `pending` calls are left to the caller.
    """
    last = state.messages[-1]
    if not isinstance(last, AssistantMessage) or not last.tool_calls:
        return
    answered = {*state.results, *(call.id for call in pending)}
    for call in last.tool_calls:
        if call.id not in answered:
            state.results[call.id] = ToolResult.failure(ToolError(why, kind=ErrorKind.CANCELLED))
    outcomes = outcomes_of(state, last.tool_calls)
    if outcomes:
        state.messages.append(ToolMessage(outcomes=outcomes))
