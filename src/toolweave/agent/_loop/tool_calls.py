"""The tool calls of one run: approved, executed concurrently, recorded, and truncated for the model.

Does not decide the next step (`step.py` does) and owns no task.

The order of a call's steps keeps it from being made twice, or without an approval: a record replays it; then a person
or a rule approves the present definition of its tool; then it waits for a slot of its server, and starts over if the
definition has changed meanwhile; then the journal records that it begins; then the tool is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

import anyio

from toolweave._text import alternatives, with_sentence
from toolweave.agent import _events as events
from toolweave.agent._idempotency import call_key
from toolweave.agent._journal import ASK, Ask, Recorded, outcome_unknown
from toolweave.agent._limits import Limits
from toolweave.agent._loop.runtime import RunEnvironment
from toolweave.agent._loop.step import AvailableTools, cut_off_result
from toolweave.agent._loop.tool_search import ToolSearchToolset
from toolweave.agent._loop.usage import ChildUsage
from toolweave.agent._questions import Asked, QuestionAnswers
from toolweave.agent.approval import WaitingCall, definition_digest, denied
from toolweave.errors import ErrorKind, ToolError, ToolExecutionError, as_tool_error
from toolweave.models import ToolCallPart
from toolweave.protocol.client_requests import ElicitationRequest, ElicitationResult
from toolweave.tools import IDEMPOTENCY_KEY, CallContext, Progress, ToolCall, ToolResult, Toolset, ToolSpec
from toolweave.tools._call import NO_CONTEXT
from toolweave.tools._truncation import ResultCache
from toolweave.tools.names import down_servers, unknown_tool

_TRANSPORT = frozenset(
    {ErrorKind.NOT_SENT, ErrorKind.OUTCOME_UNKNOWN, ErrorKind.CLOSED, ErrorKind.TIMEOUT, ErrorKind.AUTH_REQUIRED}
)
"""Failures of the transport to a server, not of its tool."""


@dataclass(frozen=True, slots=True)
class _TurnCalls:
    """The turn whose calls are made.

    Attributes:
        step: Number of the turn.
        offer: The tools that the model could call.
        results: The results of the calls that have ended, by call id; filled as they end.
        fatal: Errors that end the run.
    """

    step: int
    offer: AvailableTools
    results: dict[str, ToolResult]
    fatal: list[Exception] = field(default_factory=list[Exception])


@dataclass(slots=True, kw_only=True)
class ToolCalls:
    """Executes the tool calls of one run.

    Attributes:
        tools: The tools that are called.
        limits: The limits of the run.
        cache: The whole results of which the model reads a part.
        ctx: The context of the calls.
        below: The usage of the runs that tools start.
        keyed: Whether calls may be repeated after a crash, so that each gets a stable idempotency key.
        waiting: Calls of the last turn that wait for a person while no process executes the run.
    """

    environment: RunEnvironment
    tools: Toolset
    limits: Limits
    cache: ResultCache
    ctx: CallContext
    below: ChildUsage
    keyed: bool
    waiting: list[WaitingCall] = field(default_factory=list[WaitingCall], init=False)

    async def execute(
        self,
        step: int,
        groups: Sequence[Sequence[ToolCallPart]],
        offer: AvailableTools,
        results: dict[str, ToolResult],
    ) -> None:
        """Execute the groups one after another, the calls of a group concurrently; fill `results` as they end.

        No further group is begun once a call is in `waiting`.

        Raises:
            ToolExecutionError: The transport to a server failed, and such an error ends the run.
        """
        turn = _TurnCalls(step, offer, results)
        # A call of a sequential tool is a group alone, so the groups keep the order that the model chose.
        for group in groups:
            if len(group) == 1:
                await self._call(turn, group[0])
            else:
                async with anyio.create_task_group() as tasks:
                    for call in group:
                        tasks.start_soon(partial(self._guarded, turn, call, tasks.cancel_scope))
            if turn.fatal:
                raise turn.fatal[0]
            if self.waiting:
                return

    async def _guarded(self, turn: _TurnCalls, call: ToolCallPart, scope: anyio.CancelScope) -> None:
        try:
            await self._call(turn, call)
        except Exception as exc:  # boundary: an error of the run's own code ends the run, not as a group
            # First in the list: an error of our own code explains more than the transport errors that it may have
            # caused.
            turn.fatal.insert(0, exc)
            scope.cancel()

    async def _call(self, turn: _TurnCalls, call: ToolCallPart) -> None:
        tool = turn.offer.find(call.name)
        recorded = await self.environment.journal.call(turn.step, call, tool)
        if isinstance(recorded, Recorded):
            # Its tool may be gone by now.
            result = self._replayed(call, tool, recorded)
        elif tool is None or call.cut or call.malformed is not None:
            result = await self._record(turn, call, self._impossible(turn, call))
        else:
            answered = await self._approved_result(turn, call, tool, is_repeated=recorded is ASK)
            if answered is None:
                return
            result = answered
            self._check_transport(turn, tool, result)
        turn.results[call.id] = self.cache.cut(result, NO_CONTEXT, result_id=call.id)
        run_id = self.environment.run_id
        self.environment.emit(events.ToolFinished(run_id=run_id, step=turn.step, call=call, result=result))

    def _replayed(self, call: ToolCallPart, tool: ToolSpec | None, recorded: Recorded) -> ToolResult:
        self.below.restore(recorded.below)
        telemetry = self.environment.telemetry
        if telemetry is not None:
            telemetry.replayed_tool(call, tool, recorded.result)
        return recorded.result

    def _impossible(self, turn: _TurnCalls, call: ToolCallPart) -> ToolResult:
        """Return the result of a call that reaches no tool."""
        if call.cut:
            return cut_off_result(call)
        if turn.offer.find(call.name) is not None:
            return _malformed(call)
        text = unknown_tool(call.name, [tool.name for tool in turn.offer.tools])
        unopened = self.environment.runtime.tools.unopened(call.name)
        if unopened:
            sources = alternatives(list(map(repr, unopened)))
            text = with_sentence(text, f"It may be a tool of {sources}, which cannot be reached now")
        text = with_sentence(text, down_servers(self.environment.runtime.tools.server_errors()))
        return ToolResult.failure(text, kind=ErrorKind.NOT_FOUND)

    def _check_transport(self, turn: _TurnCalls, tool: ToolSpec, result: ToolResult) -> None:
        """Let a transport error of the tool's server end the run, if it is set up so."""
        is_local = tool.server is None
        has_response = result.raw is not None
        if not self.environment.runtime.raises or is_local or has_response or not result.is_error:
            return
        error = result.require_error()
        if error.kind in _TRANSPORT:
            turn.fatal.append(ToolExecutionError(error, result=result, tool=tool.name))

    async def _approved_result(
        self, turn: _TurnCalls, call: ToolCallPart, tool: ToolSpec, *, is_repeated: bool
    ) -> ToolResult | None:
        """Return the result of a call, or None if it waits for a person."""
        asked = await self.environment.journal.asked(turn.step, call, tool)
        while True:
            refusal = None
            # A call that continues after a question was approved before it was begun.
            if asked.allowed is None or asked.allowed != definition_digest(tool):
                refusal = await self._refusal(turn, call, tool, is_repeated=is_repeated)
            if refusal is ASK:
                self.waiting.append(WaitingCall.of(call, tool, run_id=self.environment.run_id, repeats=is_repeated))
                return None
            if refusal is not None:
                return await self._record(turn, call, refusal)
            async with self.environment.runtime.limiter.slot(tool):
                current = self._current(tool)
                if current is tool:
                    result = await self._executed(turn, call, tool, asked)
                    if result is None:
                        return None
                    return await self._record(turn, call, result)
            # It was replaced meanwhile: the approval was for the old one.
            tool = current

    async def _record(self, turn: _TurnCalls, call: ToolCallPart, result: ToolResult) -> ToolResult:
        recorded = Recorded(result=result, below=self.below.unrecorded())
        await self.environment.journal.call_finished(turn.step, call, recorded)
        return result

    def _current(self, tool: ToolSpec) -> ToolSpec:
        """Return the tool that a call would reach now: the same, unless its definition has changed."""
        tools = self.tools
        if isinstance(tools, ToolSearchToolset):
            found = tools.find(tool.name)
        else:
            found = tools.snapshot().find(tool.name)
        if found is None or found is tool:
            return tool
        if definition_digest(found) == definition_digest(tool):
            return tool
        return found

    async def _refusal(
        self, turn: _TurnCalls, call: ToolCallPart, tool: ToolSpec, *, is_repeated: bool
    ) -> ToolResult | Ask | None:
        """Return the result of a call that may not be made, None if it may, or `ASK` if a person decides later."""
        if self._is_own(tool):
            return None
        environment = self.environment
        run_id = environment.run_id

        def ask() -> None:
            environment.emit(events.ApprovalRequested(run_id=run_id, step=turn.step, call=call, tool=tool))

        approvals = environment.run.approvals
        approval = await environment.journal.answer(call, tool)
        was_asked = True
        if approval is None:
            approval, was_asked = await approvals.decide(call, tool, ask, force=is_repeated)
        else:
            approvals.accept(tool, approval)
        if approval is None:
            return ASK
        if was_asked:
            environment.emit(
                events.ApprovalGiven(
                    run_id=run_id, step=turn.step, call=call, approved=approval.approved, reason=approval.reason
                )
            )
        if not approval.approved:
            if is_repeated:
                return outcome_unknown(tool.name)
            return denied(tool.name, approval)
        if approval.remember is not None:
            await environment.journal.allow(tool, persistent=approval.remember == "agent")
        return None

    def _is_own(self, tool: ToolSpec) -> bool:
        """Whether a tool only reads data that the run has already (search, kept results) and needs no approval."""
        if self.cache.owns(tool):
            return True
        return isinstance(self.tools, ToolSearchToolset) and self.tools.owns(tool)

    async def _executed(self, turn: _TurnCalls, call: ToolCallPart, tool: ToolSpec, asked: Asked) -> ToolResult | None:
        """Return the result of a call, or None if it waits for the answer to a question of its server."""
        environment = self.environment
        run_id = environment.run_id
        await environment.journal.call_started(turn.step, call, tool)
        environment.emit(events.ToolStarted(run_id=run_id, step=turn.step, call=call, tool=tool))
        answers = self._answers(turn, call, tool, asked)
        ctx = self._context(turn, call, tool, answers)
        telemetry = environment.telemetry
        if telemetry is None:
            result = await self._sent(call, tool, ctx, answers)
        else:
            with telemetry.tool(call, tool) as span:
                result = await self._sent(call, tool, ctx.replace(meta=span.carried(ctx.meta)), answers)
                if result is not None:
                    span.finish(result)
        if result is None:
            for question_id, (question, running) in answers.parked.items():
                repeats = running and asked.repeats == "ask"
                waiting = WaitingCall.of(call, tool, run_id=run_id, repeats=repeats)
                self.waiting.append(replace(waiting, call_id=question_id, question=question))
        return result

    def _context(self, turn: _TurnCalls, call: ToolCallPart, tool: ToolSpec, answers: QuestionAnswers) -> CallContext:
        environment = self.environment
        run_id = environment.run_id
        updates = count(1)

        def progress(update: Progress) -> None:
            if _is_kept(next(updates)):
                environment.emit(events.ToolProgress(run_id=run_id, step=turn.step, call=call, progress=update))

        meta = self.ctx.meta
        if self.keyed:
            meta = {**meta, IDEMPOTENCY_KEY: call_key(run_id, turn.step, call.id)}
        return CallContext(
            timeout=self.limits.call_seconds,
            on_progress=progress,
            meta=meta,
            state=self.ctx.state,
            caller=self.ctx.caller,
            questions=None if tool.server is None else answers,  # a local tool may call several servers
        )

    def _answers(self, turn: _TurnCalls, call: ToolCallPart, tool: ToolSpec, asked: Asked) -> QuestionAnswers:
        environment = self.environment
        run_id = environment.run_id

        def publish(question_id: str, request: ElicitationRequest, answer: ElicitationResult | None) -> None:
            if answer is None:
                event: events.Event = events.InputRequested(
                    run_id=run_id, step=turn.step, call=call, tool=tool, question_id=question_id, request=request
                )
            else:
                event = events.InputGiven(
                    run_id=run_id, step=turn.step, call=call, question_id=question_id, action=answer.action
                )
            environment.emit(event)

        return QuestionAnswers(environment.run.questions, call.id, asked, publish=publish)

    async def _sent(
        self, call: ToolCallPart, tool: ToolSpec, ctx: CallContext, answers: QuestionAnswers
    ) -> ToolResult | None:
        try:
            with answers.scope:
                return await self.tools.call(ToolCall(name=tool.name, arguments=call.arguments, id=call.id), ctx)
        # The model reads the error and may go another way; only errors of our own code end the run.
        except Exception as exc:
            # Boundary: a third-party Toolset may raise where ours returns.
            return ToolResult.failure(as_tool_error(exc))
        finally:
            answers.end()
        # It was given up for a question.
        return None


def _is_kept(number: int) -> bool:
    """Whether the update of this number becomes an event: all of the first thousand, then ever fewer of them.

    A run keeps its events, and a server may send progress without end.
    """
    return number % (1 << max(0, number.bit_length() - 10)) == 0


def _malformed(call: ToolCallPart) -> ToolResult:
    shown = (call.malformed or "")[:200]
    message = f"the arguments of tool {call.name!r} are not a JSON object: {shown!r}; send one object"
    return ToolResult.failure(ToolError(message, kind=ErrorKind.INVALID_INPUT))
