"""One turn of the model and its tool calls: streamed, approved, executed concurrently, truncated.

Does not decide the next step (`_step.py` does) and owns no task of its own.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import isawaitable
from itertools import count
from typing import TYPE_CHECKING

import anyio

from toolweave.agent import _events as events
from toolweave.agent._approval import Approvals, WaitingCall, definition_digest, denied
from toolweave.agent._history import History, trim_history
from toolweave.agent._idempotency import call_key
from toolweave.agent._journal import ASK, Ask, Journal, Recorded, outcome_unknown
from toolweave.agent._limits import Limits
from toolweave.agent._questions import Asked, QuestionAnswers, RunQuestions
from toolweave.agent._step import AvailableTools, cut_off_result
from toolweave.agent._tool_search import ToolSearchToolset
from toolweave.agent._usage import ChildUsage
from toolweave.errors import ErrorKind, ModelError, ToolError, ToolExecutionError, as_tool_error
from toolweave.models import _base as base
from toolweave.models._base import Finished, Model, ModelRequest
from toolweave.models._messages import AssistantMessage, Message, ToolCallPart
from toolweave.models._prices import listed, priced
from toolweave.protocol.client_requests import ElicitationRequest, ElicitationResult
from toolweave.tools._call import IDEMPOTENCY_KEY, NO_CONTEXT, CallContext, Progress, ToolCall
from toolweave.tools._names import unknown_tool
from toolweave.tools._result import ToolResult
from toolweave.tools._spec import ToolSpec
from toolweave.tools._toolset import Toolset
from toolweave.tools._truncation import ResultCache

if TYPE_CHECKING:
    from toolweave.agent._telemetry import RunTelemetry


class CallIds:
    """Unique ids for the calls of one turn; a provider's id that is free is kept.

    Args:
        taken: The ids of the conversation up to the turn.
    """

    def __init__(self, taken: AbstractSet[str]) -> None:
        self._taken = taken  # not copied: a long run would pay for that at each of its turns
        self._used: set[str] = set()
        self._begun: defaultdict[str, deque[str]] = defaultdict(deque)

    def begin(self, given: str) -> str:
        """Return the id of a call that the model begins."""
        self._begun[given].append(self._free(given))
        return self._begun[given][-1]

    def current(self, given: str) -> str:
        """Return the unique id of the last call that began with this provider id."""
        begun = self._begun.get(given)
        if begun:
            return begun[-1]
        return given

    def settle(self, message: AssistantMessage) -> AssistantMessage:
        """Return the finished turn with its call ids made unique."""
        parts = tuple(self._settled(part) if isinstance(part, ToolCallPart) else part for part in message.parts)
        unchanged = all(new is old for new, old in zip(parts, message.parts, strict=True))
        if unchanged:
            return message
        return replace(message, parts=parts)

    def _settled(self, call: ToolCallPart) -> ToolCallPart:
        begun = self._begun.get(call.id)
        found = begun.popleft() if begun else self._free(call.id)
        if found == call.id:
            return call
        return replace(call, id=found)

    def _free(self, given: str) -> str:
        found = given
        number = 1
        while not found or found in self._used or found in self._taken:
            number += 1
            found = f"{given or 'call'}_{number}"
        self._used.add(found)
        return found


_log = logging.getLogger("toolweave.agent")
_MOST_TRIMS = 3
_TRANSPORT = frozenset(
    {ErrorKind.NOT_SENT, ErrorKind.OUTCOME_UNKNOWN, ErrorKind.CLOSED, ErrorKind.TIMEOUT, ErrorKind.AUTH_REQUIRED}
)
"""Failures of the transport to a server, not of its tool."""


class PerServerLimiter:
    """Limits the number of concurrent calls on each server."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._servers: dict[str, anyio.Semaphore] = {}

    def of(self, tool: ToolSpec) -> AbstractAsyncContextManager[object]:
        """Return the context manager that a call of a tool holds while it runs."""
        if tool.server is None:
            return nullcontext()
        return self._servers.setdefault(tool.server, anyio.Semaphore(self._most))


@dataclass(slots=True, kw_only=True)
class TurnRunner:
    """Executes the turns of one run.

    Attributes:
        raises: Whether a transport error of a server ends the run (`on_transport_error="raise"`).
        keyed: Whether calls may be repeated after a crash, so that each gets a stable idempotency key.
        priced: Whether the cost of a turn is needed.
        history: Function that returns the messages to send of the conversation; None sends all of them.
        unopened: Function that returns the toolsets that may have a tool of this name, and are not open.
        telemetry: Makes the spans of turns and calls; None without tracing.
        share: Share of the conversation that the model accepts, as far as known: less than 1 after it was too long.
        waiting: Calls of the last turn that wait for a person while no process executes the run.
        partial: The text so far of the current turn, or of one that was broken off.
    """

    run_id: str
    emit: Callable[[events.Event], None]
    model: Model
    journal: Journal
    tools: Toolset
    approvals: Approvals
    questions: RunQuestions
    limits: Limits
    kept: ResultCache
    slots: PerServerLimiter
    ctx: CallContext
    below: ChildUsage
    unopened: Callable[[str], Sequence[str]]
    raises: bool = False
    keyed: bool = False
    priced: bool = False
    history: History | None = None
    share: float = 1.0
    waiting: list[WaitingCall] = field(default_factory=list[WaitingCall])
    partial: list[str] = field(default_factory=list[str])
    telemetry: RunTelemetry | None = None
    _taken: set[str] = field(default_factory=set[str], init=False)
    _read: int = field(default=0, init=False)

    async def ask(self, step: int, request: ModelRequest) -> Finished:
        """Return the model's turn, requested or replayed.

        Raises:
            ModelError: The model could not answer.
        """
        self.emit(events.StepStarted(run_id=self.run_id, step=step, tools=len(request.tools)))
        finished = await self.journal.turn(step)
        if finished is not None:
            if self.telemetry is not None:
                self.telemetry.replayed_turn(finished)
            if finished.message.text:
                self.emit(events.TextDelta(run_id=self.run_id, step=step, text=finished.message.text))
            return finished
        if self.telemetry is None:
            finished = await self._asked(step, request)
        else:
            with self.telemetry.turn(request) as span:
                finished = await self._asked(step, request)
                span.finish(listed(priced(finished, self.model)) if span.is_recording else finished)
        await self.journal.turn_finished(step, finished)
        return finished

    async def _asked(self, step: int, request: ModelRequest) -> Finished:
        finished = await self._fitting(step, request)
        if self.priced:
            return listed(priced(finished, self.model))
        return finished

    async def _fitting(self, step: int, request: ModelRequest) -> Finished:
        """Return the turn; if the conversation is too long for the model, send ever less of its newest part.

        The share that was accepted is kept for the run's next turns, so that not each of them is refused first.
        """
        whole = request.messages
        taken = self._taken_ids(request.messages)
        if self.history is not None:
            found = self.history(whole)
            whole = await found if isawaitable(found) else found
        for _ in range(_MOST_TRIMS):
            if self.share == 1.0:
                sent = whole
            else:
                sent = trim_history(whole, keep=self.share)
            try:
                return await self._streamed(step, replace(request, messages=tuple(sent)), taken)
            except ModelError as exc:
                shorter = trim_history(whole, keep=self.share / 2)
                if exc.kind != "too_long" or len(shorter) == len(sent):
                    raise
                self.share /= 2
                _log.info("%s; its newest %d of %d messages are sent instead", exc, len(shorter), len(whole))
        return await self._streamed(step, replace(request, messages=tuple(trim_history(whole, keep=self.share))), taken)

    def _taken_ids(self, messages: Sequence[Message]) -> AbstractSet[str]:
        """Return the ids of all calls of the run's conversation; only new messages are scanned."""
        said = (one for one in messages[self._read :] if isinstance(one, AssistantMessage))
        self._taken.update(call.id for one in said for call in one.tool_calls)
        self._read = len(messages)
        return self._taken

    async def _streamed(self, step: int, request: ModelRequest, taken: AbstractSet[str]) -> Finished:
        run_id = self.run_id
        ids = CallIds(taken)
        self.partial = []
        async with aclosing(self.model.stream(request)) as stream:
            async for event in stream:
                match event:
                    case base.StreamedText():
                        self.partial.append(event.text)
                        self.emit(events.TextDelta(run_id=run_id, step=step, text=event.text))
                    case base.StreamedThinking():
                        self.emit(events.ThinkingDelta(run_id=run_id, step=step, text=event.text))
                    case base.StreamedToolCall():
                        call = ToolCallPart(id=ids.begin(event.id), name=event.name)
                        self.emit(events.ToolCallStarted(run_id=run_id, step=step, call=call))
                    case base.ToolCallDelta():
                        known = ids.current(event.id)
                        piece = event.arguments
                        self.emit(events.ToolArguments(run_id=run_id, step=step, call_id=known, delta=piece))
                    case base.StreamRestarted():
                        ids = CallIds(taken)
                        self.partial = []
                        self.emit(events.TurnRestarted(run_id=run_id, step=step, error=event.error))
                    case base.Finished():
                        self.partial = []
                        return replace(event, message=ids.settle(event.message))
        raise ModelError("the turn broke off", model=self.model.name)

    async def run(
        self,
        step: int,
        groups: Sequence[Sequence[ToolCallPart]],
        offer: AvailableTools,
        results: dict[str, ToolResult],
    ) -> None:
        """Execute the groups one after another, the calls of a group concurrently; fill `results` as they end.

        No further group is begun once a call is in `waiting`.

        Raises:
            ToolExecutionError: The transport to a server failed, and `raises` is set.
        """
        fatal: list[Exception] = []
        for group in groups:
            if len(group) == 1:
                await self._call(step, group[0], offer, results, fatal)
            else:
                async with anyio.create_task_group() as tasks:
                    for call in group:
                        tasks.start_soon(partial(self._guarded, step, call, offer, results, fatal, tasks.cancel_scope))
            if fatal:
                raise fatal[0]
            if self.waiting:
                return

    async def _guarded(
        self,
        step: int,
        call: ToolCallPart,
        offer: AvailableTools,
        results: dict[str, ToolResult],
        fatal: list[Exception],
        scope: anyio.CancelScope,
    ) -> None:
        try:
            await self._call(step, call, offer, results, fatal)
        except Exception as exc:  # boundary: an error of the run's own code ends the run, not as a group
            fatal.insert(0, exc)
            scope.cancel()

    async def _call(
        self,
        step: int,
        call: ToolCallPart,
        offer: AvailableTools,
        results: dict[str, ToolResult],
        fatal: list[Exception],
    ) -> None:
        tool = offer.find(call.name)
        recorded = await self.journal.call(step, call, tool)
        if isinstance(recorded, Recorded):  # its tool may be gone by now
            result = recorded.result
            self.below.restore(recorded.below)
            if self.telemetry is not None:
                self.telemetry.replayed_tool(call, tool, result)
        elif call.cut:
            result = await self._told(step, call, cut_off_result(call))
        elif tool is None:
            text = unknown_tool(call.name, [one.name for one in offer.tools])
            unopened = self.unopened(call.name)
            if unopened:
                text += f". It may be a tool of {' or '.join(map(repr, unopened))}, which cannot be reached now"
            result = await self._told(step, call, ToolResult.failure(text, kind=ErrorKind.NOT_FOUND))
        elif call.malformed is not None:
            result = await self._told(step, call, _malformed(call))
        else:
            answer = await self._answer(step, call, tool, again=recorded is ASK)
            if answer is None:
                return
            result = answer
            if self.raises and tool.server is not None and result.is_error and result.raw is None:  # no answer of it
                error = result.require_error()
                if error.kind in _TRANSPORT:
                    fatal.append(ToolExecutionError(error, result=result, tool=tool.name))
        results[call.id] = self.kept.cut(result, NO_CONTEXT, result_id=call.id)
        self.emit(events.ToolFinished(run_id=self.run_id, step=step, call=call, result=result))

    async def _answer(self, step: int, call: ToolCallPart, tool: ToolSpec, *, again: bool) -> ToolResult | None:
        """Return the result of a call, or None if it waits for a person."""
        asked = await self.journal.asked(step, call, tool)
        while True:
            allowed = asked.allowed is not None and asked.allowed == definition_digest(tool)
            if allowed:
                result = None
            else:
                result = await self._refusal(step, call, tool, again=again)
            if result is ASK:
                self.waiting.append(WaitingCall.of(call, tool, run_id=self.run_id, repeats=again))
                return None
            if result is None:
                async with self.slots.of(tool):
                    found = self._now(tool)
                    if found is tool:
                        result = await self._executed(step, call, tool, asked)
                        if result is None:
                            return None
            else:
                found = tool
            if result is not None:
                return await self._told(step, call, result)
            tool = found  # it was replaced meanwhile: the approval was for the old one

    async def _told(self, step: int, call: ToolCallPart, result: ToolResult) -> ToolResult:
        await self.journal.call_finished(step, call, Recorded(result=result, below=self.below.unrecorded()))
        return result

    def _now(self, tool: ToolSpec) -> ToolSpec:
        """Return the tool that a call would reach now: the same, unless its definition has changed."""
        tools = self.tools
        if isinstance(tools, ToolSearchToolset):
            found = tools.find(tool.name)
        else:
            found = tools.snapshot().find(tool.name)
        same = found is None or found is tool or definition_digest(found) == definition_digest(tool)
        if same or found is None:
            return tool
        return found

    async def _refusal(self, step: int, call: ToolCallPart, tool: ToolSpec, *, again: bool) -> ToolResult | Ask | None:
        """Return the result of a call that may not be made, None if it may, or `ASK` if a person decides later."""
        if self._is_own(tool):
            return None

        def ask() -> None:
            self.emit(events.ApprovalRequested(run_id=self.run_id, step=step, call=call, tool=tool))

        approval = await self.journal.answer(call, tool)
        asked = True
        if approval is None:
            approval, asked = await self.approvals.decide(call, tool, ask, force=again)
        else:
            self.approvals.accept(tool, approval)
        if approval is None:
            return ASK
        if asked:
            given = events.ApprovalGiven(
                run_id=self.run_id, step=step, call=call, approved=approval.approved, reason=approval.reason
            )
            self.emit(given)
        if not approval.approved:
            if again:
                return outcome_unknown(tool.name)
            return denied(tool.name, approval)
        if approval.remember is not None:
            await self.journal.allow(tool, persistent=approval.remember == "agent")
        return None

    def _is_own(self, tool: ToolSpec) -> bool:
        """Whether a tool only reads data that the run has already (search, kept results) and needs no approval."""
        return self.kept.owns(tool) or (isinstance(self.tools, ToolSearchToolset) and self.tools.owns(tool))

    async def _executed(self, step: int, call: ToolCallPart, tool: ToolSpec, asked: Asked) -> ToolResult | None:
        """Return the result of a call, or None if it waits for the answer to a question of its server."""
        run_id = self.run_id
        emit = self.emit
        updates = count(1)

        def progress(update: Progress) -> None:
            if not _is_kept(next(updates)):
                return
            emit(events.ToolProgress(run_id=run_id, step=step, call=call, progress=update))

        await self.journal.call_started(step, call, tool)
        emit(events.ToolStarted(run_id=run_id, step=step, call=call, tool=tool))
        about = self.ctx
        if self.keyed:
            meta = {**about.meta, IDEMPOTENCY_KEY: call_key(run_id, step, call.id)}
        else:
            meta = about.meta
        answers = self._answers(step, call, tool, asked)
        ctx = CallContext(
            timeout=self.limits.call_seconds,
            on_progress=progress,
            meta=meta,
            state=about.state,
            caller=about.caller,
            questions=answers if tool.server is not None else None,  # a local tool may call several servers
        )
        if self.telemetry is None:
            result = await self._made(call, tool, ctx, answers)
        else:
            with self.telemetry.tool(call, tool) as span:
                result = await self._made(call, tool, ctx.replace(meta=span.carried(meta)), answers)
                if result is not None:
                    span.finish(result)
        if result is None:
            for question_id, (question, running) in answers.parked.items():
                waits = WaitingCall.of(call, tool, run_id=run_id, repeats=running and asked.repeats == "ask")
                self.waiting.append(replace(waits, call_id=question_id, question=question))
        return result

    def _answers(self, step: int, call: ToolCallPart, tool: ToolSpec, asked: Asked) -> QuestionAnswers:
        def told(question_id: str, request: ElicitationRequest, answer: ElicitationResult | None) -> None:
            run_id = self.run_id
            if answer is None:
                event: events.Event = events.InputRequested(
                    run_id=run_id, step=step, call=call, tool=tool, question_id=question_id, request=request
                )
            else:
                event = events.InputGiven(
                    run_id=run_id, step=step, call=call, question_id=question_id, action=answer.action
                )
            self.emit(event)

        return QuestionAnswers(self.questions, call.id, asked, told=told)

    async def _made(
        self, call: ToolCallPart, tool: ToolSpec, ctx: CallContext, answers: QuestionAnswers
    ) -> ToolResult | None:
        try:
            with answers.scope:
                return await self.tools.call(ToolCall(name=tool.name, arguments=call.arguments, id=call.id), ctx)
        except Exception as exc:  # boundary: a third-party Toolset may raise where ours returns
            return ToolResult.failure(as_tool_error(exc))
        finally:
            answers.end()
        return None  # it was given up for a question


def _is_kept(number: int) -> bool:
    """Whether the update of this number becomes an event: all of the first thousand, then ever fewer of them.

    A run keeps its events, and a server may send progress without end.
    """
    return number % (1 << max(0, number.bit_length() - 10)) == 0


def _malformed(call: ToolCallPart) -> ToolResult:
    shown = (call.malformed or "")[:200]
    message = f"the arguments of tool {call.name!r} are no JSON object: {shown!r}; send one object"
    return ToolResult.failure(ToolError(message, kind=ErrorKind.INVALID_INPUT))
