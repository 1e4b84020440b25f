"""The run loop: executes the steps that `step.py` decides.

The only module of the package with side effects besides tools and the lifespan. Knows no connection and no provider.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio

from toolweave._json_types import Json, JsonObject, without_members
from toolweave.agent import _events as events
from toolweave.agent._events import Event, RunResult, RunStatus, StopReason
from toolweave.agent._journal import Journal, RunStart
from toolweave.agent._lifespan import LifespanPeriod, ToolsetSource
from toolweave.agent._loop.agent_tools import CombinedToolset
from toolweave.agent._loop.model_turns import ModelTurns
from toolweave.agent._loop.runtime import AgentRuntime, RunControl, RunEnvironment, RunRequest
from toolweave.agent._loop.step import (
    AskModel,
    AvailableTools,
    Finish,
    RunState,
    RunTools,
    closed,
    count_failures,
    is_wasted,
    next_step,
    outcomes_of,
)
from toolweave.agent._loop.tool_calls import ToolCalls
from toolweave.agent._loop.tool_search import ToolSearchToolset
from toolweave.agent._output import Output
from toolweave.agent._sessions import SessionState, continue_conversation
from toolweave.errors import ConfigError, ModelError, RunError, StoreError, ToolExecutionError
from toolweave.models import AssistantMessage, TextPart, ToolCallPart, ToolMessage, Usage
from toolweave.tools import IDEMPOTENCY_KEY, CallContext, Toolset

if TYPE_CHECKING:
    from toolweave.agent._loop.telemetry import RunTelemetry

_log = logging.getLogger("toolweave.agent")
_SAVE_SECONDS = 30.0
_STATUS: dict[StopReason, RunStatus] = {
    "end": "completed",
    "client_tools": "completed",
    "waiting": "waiting",
    "cancelled": "cancelled",
    "model_error": "failed",
    "transport_error": "failed",
    "error": "failed",
}
_UNDONE = "the call was not finished: the run ended before"


@dataclass(frozen=True, slots=True)
class _StartedRun:
    """A run that this process executes.

    Attributes:
        messages_before: Number of messages before its first turn.
    """

    state: RunState
    turns: ModelTurns
    calls: ToolCalls
    messages_before: int

    @property
    def last_calls(self) -> tuple[ToolCallPart, ...]:
        """The calls of the last turn."""
        last = self.state.messages[-1]
        if isinstance(last, AssistantMessage):
            return last.tool_calls
        return ()


class RunLoop:
    """The loop of one run.

    Attributes:
        step: Number of the current turn of the model, from 1; 0 before the first.
        durable: Whether the run is kept in a store.
        priced: Whether the run or one above it has a cost limit, so that the cost of each turn is needed.
    """

    def __init__(
        self,
        runtime: AgentRuntime,
        request: RunRequest,
        run: RunControl,
        emit: Callable[[Event], None],
        *,
        priced: bool = False,
    ) -> None:
        self.step = 0
        self.priced = priced
        self.durable = request.journal is not None or runtime.durable
        self._runtime = runtime
        self._hooks = runtime.hooks()
        self._request = request
        self._rules = request.rules
        self._recorded_turns = 0
        self._ctx = request.ctx
        self._run = run
        self._emit = emit
        self._started: _StartedRun | None = None

    async def drive(self, session_state: SessionState, period: LifespanPeriod) -> RunResult:
        """Execute the run to its end; a failure is in the result, cancellation propagates."""
        journal = self._request.journal or self._runtime.open_journal(self._run.id)
        session = self._request.session
        held = journal.held(self._run.cancel, sent=self._request.sent, session=session)
        # The run's lease comes first: a process that has it may be asked to cancel the run while it waits for its
        # session.
        async with held, self._runtime.hold_session(session, self._run.id):
            return await self._execute(session_state, period, journal)

    @property
    def began(self) -> bool:
        """Whether this process executes the run: the journal has accepted its start."""
        return self._started is not None

    def count_child(self, run_id: str, took: Usage) -> None:
        """Add the usage of a child run, once for each run id."""
        if self._started is not None:
            self._started.state.below.count(run_id, took)

    def result(self, reason: StopReason, finish: Finish | None = None, *, error: Exception | None = None) -> RunResult:
        """Return the result of the run if it ends now."""
        result = RunResult(run_id=self._run.id, stop_reason=reason, status=_STATUS.get(reason, "stopped"), error=error)
        if finish is not None:
            result = replace(result, output=finish.output, pending=finish.pending, stop_detail=finish.detail)
        started = self._started
        if started is None:
            return result
        state = started.state
        messages = tuple(state.messages)
        text = ""
        for message in messages[started.messages_before :]:
            # Earlier answers are of the session's runs before it.
            if isinstance(message, AssistantMessage):
                text = message.text
        return replace(result, text=text, messages=messages, usage=state.total, steps=state.steps)

    async def _execute(self, session_state: SessionState, period: LifespanPeriod, journal: Journal) -> RunResult:
        extra = () if self._request.tools is None else self._request.tools.sources
        finish = Finish(reason="cancelled")
        error = None
        try:
            await self._open(period, extra)
            started = await self._start(session_state, journal)
            # The time limit excludes opening and saving: their own bounds apply, and a run that is out of time is still
            # saved.
            with anyio.move_on_after(self._rules.limits.seconds) as clock:
                finish = await self._loop_in_span(started, period)
            if clock.cancelled_caught:
                finish = Finish(reason="time_limit")
        except ModelError as exc:
            self._emit(events.ModelFailed(run_id=self._run.id, step=self.step, error=exc))
            finish = Finish(reason="model_error")
            error = exc
        except ToolExecutionError as exc:
            finish = Finish(reason="transport_error")
            error = exc
        except Exception as exc:
            # Boundary: any error that ends a run is raised to its awaiters.
            finish = Finish(reason="error")
            error = exc
        # Also on cancellation, which passes through here and is not caught.
        finally:
            result = self._close(finish, error)
            try:
                await self._save(result, journal)
            finally:
                if extra:
                    await period.release(extra)
        return result

    async def _open(self, period: LifespanPeriod, extra: Sequence[ToolsetSource] = ()) -> None:
        failed = await self._runtime.opened(period, extra)
        if failed and self._runtime.strict:
            name = self._runtime.name
            raise ExceptionGroup(f"agent {name!r}: not all of its tools could be opened", list(failed.values()))

    async def _start(self, session_state: SessionState, journal: Journal) -> _StartedRun:
        """Record the start of the run, or restore it from its record."""
        runtime = self._runtime
        start = await journal.started(await self._new_start())
        await self._hooks.started()
        self._restore(start)
        if runtime.confirm != "never":  # else no one is asked
            runtime.allowed.restore(await journal.allowed())
        if not start.messages:
            raise ValueError("there is nothing to answer; send a message")
        # From here on the run has a state, so its end is recorded; an error before leaves the store as it was.
        self._started = self._prepare(start, session_state, journal)
        self._emit(
            events.RunStarted(
                run_id=self._run.id,
                step=0,
                agent=runtime.name,
                session=self._request.session,
                parent_id=start.parent_id,
            )
        )
        return self._started

    async def _new_start(self) -> RunStart:
        """Return the start of the run as it is requested now."""
        request = self._request
        run = self._run
        if request.session is None:
            history = ()
        else:
            history = await self._runtime.conversations.load(request.session)
        messages = continue_conversation(history, request.sent)
        output = request.rules.output
        # The agent's own form is not recorded: it is at hand again when the run is resumed.
        if output is self._runtime.rules.output:
            output = None
        return RunStart(
            run_id=run.id,
            agent=self._runtime.name,
            messages=tuple(messages),
            sent=len(messages) - len(history),
            session=request.session,
            parent_id=run.parent_id,
            depth=run.depth,
            attended=True if request.attended is None else request.attended,
            output=None if output is None else output.form,
            meta=_inherited(request.ctx.meta),
            confirm_above="never" if run.parent is None else run.parent.approvals.strictest,
        )

    def _restore(self, start: RunStart) -> None:
        """Apply the recorded start of the run where the request leaves it open."""
        request = self._request
        output = self._runtime.rules.output
        if start.output is not None and request.rules.output is output:
            if output is None or output.form != start.output:
                # The type that was given to the run is not at hand.
                output = Output.from_form(start.output)
            self._rules = replace(request.rules, output=output)
        if request.attended is None:
            self._run.approvals.attended = start.attended
        if start.confirm_above != "never":
            parent = self._run.parent
            # The policy itself counts where its run is in this process: a function decides, and a person's grants hold.
            if parent is None or parent.id != start.parent_id:
                self._run.approvals.restore_above(start.confirm_above)
        self._run.approvals.restore(start.allowed)
        self._recorded_turns = start.turns
        meta = {**start.meta, **_inherited(request.ctx.meta)}
        self._ctx = CallContext(meta=meta, state=request.ctx.state, caller=request.ctx.caller)

    def _prepare(self, start: RunStart, session_state: SessionState, journal: Journal) -> _StartedRun:
        state = RunState(messages=list(start.messages))
        environment = RunEnvironment(
            runtime=self._runtime, run=self._run, emit=self._emit, journal=journal, telemetry=self._telemetry()
        )
        calls = ToolCalls(
            environment=environment,
            tools=self._combined_tools(session_state, state),
            limits=self._rules.limits,
            cache=session_state.cache,
            ctx=self._ctx,
            below=state.below,
            keyed=self.durable,
        )
        turns = ModelTurns(environment, priced=self.priced)
        return _StartedRun(state=state, turns=turns, calls=calls, messages_before=len(start.messages))

    def _combined_tools(self, session_state: SessionState, state: RunState) -> Toolset:
        """Return the tools of the run: the agent's, its own, and those that read kept results."""
        runtime = self._runtime
        own = self._request.tools
        always = [*runtime.tools.client, "read_tool_result"]
        if own is None:
            tools = CombinedToolset(runtime.tools, session_state.cache)
        else:
            tools = CombinedToolset(runtime.tools, own, session_state.cache)
            always += own.client
        if runtime.defer_tokens is None:
            return tools
        searched = ToolSearchToolset(tools, budget_tokens=runtime.defer_tokens, always=always)
        searched.restore(state.messages)
        return searched

    def _telemetry(self) -> RunTelemetry | None:
        # A program that exports spans has imported OpenTelemetry. For any other, importing it would cost more time than
        # a whole run.
        if "opentelemetry" not in sys.modules:
            return None
        from toolweave.agent._loop.telemetry import RunTelemetry

        return RunTelemetry(
            agent=self._runtime.name, run_id=self._run.id, model=self._runtime.model.name, session=self._request.session
        )

    async def _loop_in_span(self, started: _StartedRun, period: LifespanPeriod) -> Finish:
        telemetry = started.calls.environment.telemetry
        if telemetry is None:
            return await self._loop(started, period)
        recorded = "traceparent" not in self._request.ctx.meta
        with telemetry.run(self._ctx.meta, recorded=recorded) as span:
            finish = await self._loop(started, period)
            span.finish(finish.reason, telemetry.usage, started.state.steps)
            return finish

    async def _loop(self, started: _StartedRun, period: LifespanPeriod) -> Finish:
        state = started.state
        sources = self._runtime.tools.sources
        while True:
            # Toolsets that were added meanwhile are opened between two turns only: the calls of a turn use the tools
            # that the model was offered in it.
            if self._runtime.tools.sources != sources:
                sources = self._runtime.tools.sources
                await self._open(period)
            offer = self._available_tools(started.calls.tools)
            rules = self._rules
            if state.steps < self._recorded_turns:
                # Recorded turns are replayed regardless of the limits.
                rules = rules.unbounded
            match next_step(state, rules, offer):
                case AskModel() as ask:
                    await self._ask_model(started, ask)
                case RunTools() as tools:
                    state.tool_calls += sum(map(len, tools.groups))
                    await started.calls.execute(self.step, tools.groups, offer, state.results)
                    if started.calls.waiting:
                        return self._waiting_finish(started)
                    self._note_results(started)
                case Finish() as finish:
                    return finish

    def _note_results(self, started: _StartedRun) -> None:
        """Add the results of the last turn to the conversation once all of its calls have one."""
        state = started.state
        calls = started.last_calls
        count_failures(state, [call for call in calls if call.id in state.results])
        if len(state.results) < len(calls):
            return
        state.messages.append(ToolMessage(outcomes=outcomes_of(state, calls)))
        tools = started.calls.tools
        if isinstance(tools, ToolSearchToolset):
            # Replayed searches were not executed, so the toolset learns from the messages which tools they found.
            tools.restore(state.messages[-2:])

    def _waiting_finish(self, started: _StartedRun) -> Finish:
        """Return the step of a run that waits for a person; its loop restarts the turn's calls when it is resumed."""
        ids = {call.of_call for call in started.calls.waiting}
        pending = [call for call in started.last_calls if call.id in ids]
        return Finish(reason="waiting", pending=tuple(pending))

    def _available_tools(self, tools: Toolset) -> AvailableTools:
        client = self._runtime.tools.client
        provider = self._runtime.tools.provider
        own = self._request.tools
        if own is not None:
            client = {**client, **own.client}
            provider = (*provider, *own.provider)
        if not isinstance(tools, ToolSearchToolset):
            snapshot = tools.snapshot()
            return AvailableTools(tools=snapshot, find=snapshot.find, deferred=(), client=client, provider=provider)
        shown = tools.offered(native=getattr(self._runtime.model, "native_tool_search", False) is True)
        return AvailableTools(
            tools=shown.tools, find=tools.find, deferred=shown.deferred, client=client, provider=provider
        )

    async def _ask_model(self, started: _StartedRun, ask: AskModel) -> None:
        """Request one turn of the model and add it to the state.

        Raises:
            ConfigError: The run has a cost limit, and the cost of a turn is not known.
            ModelError: The request failed.
        """
        state = started.state
        state.messages += ask.added
        state.repairs += ask.repair
        self.step = state.steps + 1
        is_new = state.steps >= self._recorded_turns
        # A replayed turn was paid for already. A new one must not begin if the limit cannot be checked: a child run of
        # the turn before may have used a model without a price.
        if is_new:
            self._check_cost(state)
        await self._hooks.turn_starting(self.step)
        finished = await started.turns.request(self.step, ask.request)
        state.steps = self.step
        state.stop = finished.stop_reason
        state.detail = finished.stop_detail
        if is_wasted(finished.message, finished.stop_reason):
            state.wasted += 1
        else:
            state.wasted = 0
        state.usage += finished.usage
        state.messages.append(finished.message)
        state.results = {}  # those of the calls of this turn
        self._emit(events.UsageReported(run_id=self._run.id, step=self.step, usage=finished.usage, total=state.total))
        if is_new:
            self._check_cost(state, finished.usage)

    def _check_cost(self, state: RunState, turn: Usage | None = None) -> None:
        """Check that the cost of a run with a cost limit is known.

        Raises:
            ConfigError: The cost of the run, or of this turn, is not known.
        """
        limit = self._rules.limits.cost
        if limit is None:
            return
        total = state.total
        # A turn without token counts may still have had a cost.
        is_turn_priced = turn is None or turn.cost is not None
        is_total_priced = total.cost is not None or not total.tokens
        if is_turn_priced and is_total_priced:
            return
        raise ConfigError(
            f"agent {self._runtime.name!r}: Limits(cost={limit:g}) cannot be kept, since what model "
            f"{self._runtime.model.name!r} or an agent below costs is not known: give the model a price "
            "(price=Price(input=..., output=...)), install `toolweave[prices]`, or leave the limit out",
            field="limits.cost",
        )

    def _close(self, finish: Finish, error: Exception | None) -> RunResult:
        started = self._started
        if started is not None:
            closed(started.state, _UNDONE, finish.pending)
            text = "".join(started.turns.partial)
            if text and error is None:
                # A user or the time limit ended the turn: the text that had arrived is kept.
                started.state.messages.append(AssistantMessage(parts=(TextPart(text=text),)))
        return self.result(finish.reason, finish, error=error)

    async def _save(self, result: RunResult, journal: Journal) -> None:
        """Save the conversation and close the journal, unless the agent is shut down or the journal itself failed.

        The conversation of an interrupted run is saved by the process that resumes it. It is saved before the run has
        ended in the journal: a process that dies in between leaves a run whose last turn is replayed, and saves the
        same conversation again.
        """
        is_interrupted = result.stop_reason == "cancelled" and not self._run.cancelling
        if is_interrupted or isinstance(result.error, (RunError, StoreError)):
            return
        session = self._request.session
        # Shielded: a cancelled run is saved too, as only this process knows its last turn.
        with anyio.move_on_after(_SAVE_SECONDS, shield=True) as deadline:
            if result.stop_reason == "waiting" and self._started is not None:
                try:
                    await journal.waiting(result, self._started.calls.waiting)
                finally:
                    await self._hooks.waiting()
                return
            if session is not None and (result.steps or result.text):
                await self._runtime.conversations.save(session, result.messages)
            try:
                await journal.finished(result)
            finally:
                await self._hooks.finished(result)
        if deadline.cancelled_caught:
            _log.warning("run %s could not be saved within %g s", self._run.id, _SAVE_SECONDS)


def _inherited(meta: JsonObject) -> Json:
    """Return the members of a call's `meta` that nested calls inherit: all but its idempotency key."""
    return without_members(meta, IDEMPOTENCY_KEY)
