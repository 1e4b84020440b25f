"""The run loop: executes the steps that `step.py` decides.

The only module of the package with side effects besides tools and the lifespan. Knows no connection and no provider.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import anyio

from toolweave.agent import _events as events
from toolweave.agent._agent_tools import AgentTools, CombinedToolset
from toolweave.agent._approval import Approvals, Attended, Confirm, Grants
from toolweave.agent._events import Event, RunResult, RunStatus, StopReason
from toolweave.agent._history import History
from toolweave.agent._journal import Journal, OpenJournal, RunStart
from toolweave.agent._lifespan import AgentLifespan, LifespanPeriod, ToolsetSource
from toolweave.agent._output import Output
from toolweave.agent._questions import RunQuestions
from toolweave.agent._run_hooks import RunHooks
from toolweave.agent._sessions import ConversationStore, SessionState, SessionStates, continue_conversation
from toolweave.agent._step import (
    AskModel,
    AvailableTools,
    Finish,
    RunRules,
    RunState,
    RunTools,
    closed,
    count_failures,
    is_wasted,
    next_step,
    outcomes_of,
)
from toolweave.agent._tool_search import ToolSearchToolset
from toolweave.agent._turn import PerServerLimiter, TurnRunner
from toolweave.errors import ConfigError, ModelError, RunError, StoreError, ToolExecutionError
from toolweave.models._base import Model, Usage
from toolweave.models._messages import AssistantMessage, Message, TextPart, ToolMessage
from toolweave.tools._call import IDEMPOTENCY_KEY, NO_CONTEXT, CallContext

if TYPE_CHECKING:
    from toolweave.agent._telemetry import RunTelemetry

HoldSession: TypeAlias = "Callable[[str | None, str], AbstractAsyncContextManager[None]]"
"""Holds a session for a run of this id."""

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


@dataclass(slots=True, kw_only=True)
class AgentRuntime:
    """State and settings that all runs of an agent share.

    Attributes:
        raises: Whether a transport error of a server ends a run.
        strict: Whether a toolset that cannot be opened ends a run.
        errors: Errors of the toolsets that could not be opened, by name.
        durable: Whether its runs are kept in a store.
        hooks: Returns the hooks of a run.
        hold_session: Holds a session during a block, so that no run of another process is in it.
        defer_tokens: Tokens of definitions above which the model gets a search tool; None sends all of them.
        history: Function that returns the messages to send of a conversation; None sends all of them.
    """

    name: str
    model: Model
    rules: RunRules
    tools: AgentTools
    owner: AgentLifespan
    rooms: SessionStates
    conversations: ConversationStore
    open_journal: OpenJournal
    hooks: Callable[[], RunHooks]
    confirm: Confirm
    allowed: Grants
    slots: PerServerLimiter
    raises: bool
    strict: bool
    errors: dict[str, Exception]
    durable: bool
    hold_session: HoldSession
    defer_tokens: int | None
    history: History | None = None

    async def opened(self, period: LifespanPeriod, extra: Sequence[ToolsetSource] = ()) -> Mapping[str, Exception]:
        """Open the agent's toolsets and those of a run; return the errors by name, which `errors` has too."""
        sources = (*self.tools.sources, *extra)
        failed = await period.open(sources) if sources else {}
        for source in sources:
            self.errors.pop(source.name, None)
        self.errors.update(failed)
        return failed


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """The request for one run: its messages, rules and options.

    Attributes:
        attended: Whether a person can approve calls; None is the recorded value, and True for a new run.
    """

    sent: tuple[Message, ...]
    rules: RunRules
    session: str | None = None
    tools: AgentTools | None = None
    ctx: CallContext = NO_CONTEXT
    attended: Attended | None = None
    run_id: str | None = None
    parent_id: str | None = None
    depth: int = 0
    journal: Journal | None = None


class RunControl(Protocol):
    """A run, as its loop sees it."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def parent_id(self) -> str | None:
        """The id of the run whose tool started it."""
        ...

    @property
    def depth(self) -> int:
        """Nesting depth: the number of runs above it."""
        ...

    @property
    def approvals(self) -> Approvals:
        """The approvals of its calls."""
        ...

    @property
    def questions(self) -> RunQuestions:
        """The questions of servers in its calls."""
        ...

    @property
    def cancelling(self) -> bool:
        """Whether its cancellation was requested."""
        ...

    def cancel(self) -> None:
        """End it."""
        ...


class RunLoop:
    """The loop of one run.

    Attributes:
        step: Number of the current turn of the model, from 1; 0 before the first.
        durable: Whether the run is kept in a store.
        priced: Whether the run or one above it has a cost limit, so that the cost of each turn is needed.
    """

    def __init__(
        self,
        host: AgentRuntime,
        job: RunRequest,
        run: RunControl,
        emit: Callable[[Event], None],
        *,
        priced: bool = False,
    ) -> None:
        self.step = 0
        self.priced = priced
        self.durable = job.journal is not None or host.durable
        self._host = host
        self._hooks = host.hooks()
        self._job = job
        self._rules = job.rules
        self._recorded = 0
        self._ctx = job.ctx
        self._run = run
        self._emit = emit
        self._state: RunState | None = None
        self._asking: TurnRunner | None = None
        self._began_with = 0

    async def drive(self, room: SessionState, period: LifespanPeriod) -> RunResult:
        """Execute the run to its end; a failure is in the result, cancellation propagates."""
        journal = self._job.journal or self._host.open_journal(self._run.id)
        async with journal.held(self._run.cancel), self._host.hold_session(self._job.session, self._run.id):
            return await self._work(room, period, journal)

    @property
    def began(self) -> bool:
        """Whether this process executes the run: the journal has accepted its start."""
        return self._state is not None

    def count(self, run_id: str, took: Usage) -> None:
        """Add the usage of a child run, once for each run id."""
        if self._state is not None:
            self._state.below.count(run_id, took)

    def result(self, reason: StopReason, finish: Finish | None = None, *, error: Exception | None = None) -> RunResult:
        """Return the result of the run if it ends now."""
        state = self._state
        messages = () if state is None else tuple(state.messages)
        # before its first turn a run has no answer: an earlier one is of the session's runs before it
        begun = self._began_with if state is not None else 0
        spoken = [one for one in messages[begun:] if isinstance(one, AssistantMessage)]
        return RunResult(
            run_id=self._run.id,
            text=spoken[-1].text if spoken else "",
            output=None if finish is None else finish.output,
            messages=messages,
            usage=Usage() if state is None else state.total,
            steps=0 if state is None else state.steps,
            stop_reason=reason,
            status=_STATUS.get(reason, "stopped"),
            error=error,
            pending=() if finish is None else finish.pending,
            stop_detail=None if finish is None else finish.detail,
        )

    async def _work(self, room: SessionState, period: LifespanPeriod, journal: Journal) -> RunResult:
        if self._job.tools is None:
            extra = ()
        else:
            extra = self._job.tools.sources
        finish = Finish(reason="cancelled")
        error = None
        try:
            await self._open(period, extra)
            state = await self._begin(journal)
            self._asking = self._turn(room, journal, state)
            with anyio.move_on_after(self._rules.limits.seconds) as clock:
                finish = await self._traced(state, self._asking, period)
            if clock.cancelled_caught:
                finish = Finish(reason="time_limit")
        except ModelError as exc:
            self._emit(events.ModelFailed(run_id=self._run.id, step=self.step, error=exc))
            finish = Finish(reason="model_error")
            error = exc
        except ToolExecutionError as exc:
            finish = Finish(reason="transport_error")
            error = exc
        except Exception as exc:  # boundary: any error that ends a run is raised to its awaiters
            finish = Finish(reason="error")
            error = exc
        finally:
            result = self._closed(finish, error)
            try:
                await self._kept(result, journal)
            finally:
                if extra:
                    await period.release(extra)
        return result

    async def _open(self, period: LifespanPeriod, extra: Sequence[ToolsetSource] = ()) -> None:
        failed = await self._host.opened(period, extra)
        if failed and self._host.strict:
            name = self._host.name
            raise ExceptionGroup(f"agent {name!r}: not all of its tools could be opened", list(failed.values()))

    async def _begin(self, journal: Journal) -> RunState:
        host = self._host
        job = self._job
        run = self._run
        session = self._job.session
        if session is None:
            history = ()
        else:
            history = await host.conversations.load(session)
        messages = continue_conversation(history, job.sent)
        if job.rules.output is host.rules.output:
            given = None
        else:
            given = job.rules.output
        start = await journal.started(
            RunStart(
                run_id=run.id,
                agent=host.name,
                messages=tuple(messages),
                sent=len(messages) - len(history),
                session=session,
                parent_id=run.parent_id,
                depth=run.depth,
                attended=True if job.attended is None else job.attended,
                output=None if given is None else given.form,
                meta=_passed_on(job.ctx.meta),
            )
        )
        await self._hooks.started()
        self._restore(start)
        if host.confirm != "never":  # else no one is asked
            host.allowed.restore(await journal.allowed())
        if not start.messages:
            raise ValueError("there is nothing to answer; send a message")
        self._state = RunState(messages=list(start.messages))
        self._began_with = len(start.messages)
        self._emit(
            events.RunStarted(run_id=run.id, step=0, agent=host.name, session=session, parent_id=start.parent_id)
        )
        return self._state

    def _restore(self, start: RunStart) -> None:
        """Apply the recorded start of the run where the request leaves it open."""
        job = self._job
        own = self._host.rules.output
        if start.output is not None and job.rules.output is own:
            same = own is not None and own.form == start.output  # else its type is not at hand
            self._rules = replace(job.rules, output=own if same else Output.from_form(start.output))
        if job.attended is None:
            self._run.approvals.attended = start.attended
        self._run.approvals.restore(start.allowed)
        self._recorded = start.turns
        meta = {**start.meta, **_passed_on(job.ctx.meta)}
        self._ctx = CallContext(meta=meta, state=job.ctx.state, caller=job.ctx.caller)

    def _turn(self, room: SessionState, journal: Journal, state: RunState) -> TurnRunner:
        host = self._host
        job = self._job
        if job.tools is None:
            others = (room.kept,)
        else:
            others = (job.tools, room.kept)
        tools = CombinedToolset(host.tools, *others)
        if host.defer_tokens is not None:
            also: Iterable[str] = () if job.tools is None else job.tools.client
            always = [*host.tools.client, *also, "read_tool_result"]
            tools = ToolSearchToolset(tools, budget_tokens=host.defer_tokens, always=always)
            tools.restore(state.messages)
        return TurnRunner(
            run_id=self._run.id,
            emit=self._emit,
            model=host.model,
            journal=journal,
            tools=tools,
            approvals=self._run.approvals,
            questions=self._run.questions,
            limits=self._rules.limits,
            kept=room.kept,
            slots=host.slots,
            ctx=self._ctx,
            below=state.below,
            unopened=host.tools.unopened,
            raises=host.raises,
            keyed=self.durable,
            priced=self.priced,
            history=host.history,
            telemetry=self._telemetry(),
        )

    def _telemetry(self) -> RunTelemetry | None:
        if "opentelemetry" not in sys.modules:  # a tracing program has loaded it
            return None
        from toolweave.agent._telemetry import RunTelemetry

        return RunTelemetry(
            agent=self._host.name, run_id=self._run.id, model=self._host.model.name, session=self._job.session
        )

    async def _traced(self, state: RunState, turn: TurnRunner, period: LifespanPeriod) -> Finish:
        if turn.telemetry is None:
            return await self._loop(state, turn, period)
        recorded = "traceparent" not in self._job.ctx.meta
        with turn.telemetry.run(self._ctx.meta, recorded=recorded) as span:
            finish = await self._loop(state, turn, period)
            span.finish(finish.reason, turn.telemetry.usage, state.steps)
            return finish

    async def _loop(self, state: RunState, turn: TurnRunner, period: LifespanPeriod) -> Finish:
        known = self._host.tools.sources
        while True:
            if self._host.tools.sources != known:  # toolsets that were added while it runs
                known = self._host.tools.sources
                await self._open(period)
            offer = self._offer(turn)
            if state.steps >= self._recorded:
                rules = self._rules
            else:
                rules = self._rules.unbounded
            match next_step(state, rules, offer):
                case AskModel() as ask:
                    await self._ask(state, turn, ask)
                case RunTools() as tools:
                    state.tool_calls += sum(map(len, tools.groups))
                    await turn.run(self.step, tools.groups, offer, state.results)
                    if turn.waiting:
                        return self._waiting(state, turn)
                    calls = cast("AssistantMessage", state.messages[-1]).tool_calls
                    count_failures(state, [call for call in calls if call.id in state.results])
                    if len(state.results) == len(calls):
                        state.messages.append(ToolMessage(outcomes=outcomes_of(state, calls)))
                        if isinstance(turn.tools, ToolSearchToolset):  # replayed calls did not pass it
                            turn.tools.restore(state.messages[-2:])
                case Finish() as finish:
                    return finish

    def _waiting(self, state: RunState, turn: TurnRunner) -> Finish:
        """Return the step of a run that waits for a person; its loop restarts the turn's calls when it is resumed."""
        ids = {call.of_call for call in turn.waiting}
        calls = cast("AssistantMessage", state.messages[-1]).tool_calls
        return Finish(reason="waiting", pending=tuple(call for call in calls if call.id in ids))

    def _offer(self, turn: TurnRunner) -> AvailableTools:
        client = self._host.tools.client
        provider = self._host.tools.provider
        extra = self._job.tools
        if extra is not None:
            client = {**client, **extra.client}
            provider = (*provider, *extra.provider)
        if isinstance(turn.tools, ToolSearchToolset):
            shown = turn.tools.offered(native=getattr(turn.model, "native_tool_search", False) is True)
            tools, deferred, find = shown.tools, shown.deferred, turn.tools.find
        else:
            tools = turn.tools.snapshot()
            deferred = ()
            find = tools.find
        return AvailableTools(tools=tools, find=find, deferred=deferred, client=client, provider=provider)

    async def _ask(self, state: RunState, turn: TurnRunner, ask: AskModel) -> None:
        state.messages += ask.added
        state.repairs += ask.repair
        self.step = state.steps + 1
        fresh = state.steps >= self._recorded
        if fresh:
            self._check_cost(state)  # runs below this one may have had no price
        await self._hooks.turn_starting(self.step)
        finished = await turn.ask(self.step, ask.request)
        state.steps = self.step
        state.stop = finished.stop_reason
        state.detail = finished.stop_detail
        if is_wasted(finished.message, finished.stop_reason):
            state.wasted = state.wasted + 1
        else:
            state.wasted = 0
        state.usage = state.usage + finished.usage
        state.messages.append(finished.message)
        state.results = {}
        reported = events.UsageReported(run_id=self._run.id, step=self.step, usage=finished.usage, total=state.total)
        self._emit(reported)
        if fresh:
            self._check_cost(state, finished.usage)

    def _check_cost(self, state: RunState, turn: Usage | None = None) -> None:
        """Raise when a cost limit cannot be checked.

        Raises:
            ConfigError: The cost of the usage is not known.
        """
        most = self._rules.limits.cost
        total = state.total
        told = turn is None or turn.cost is not None  # a turn without token counts may still have had a cost
        if most is None or (told and (total.cost is not None or not total.tokens)):
            return
        raise ConfigError(
            f"agent {self._host.name!r}: Limits(cost={most:g}) cannot be kept, since what model "
            f"{self._host.model.name!r} or an agent below costs is not known: give the model a price "
            "(price=Price(input=..., output=...)), install `toolweave[prices]`, or leave the limit out",
            field="limits.cost",
        )

    def _closed(self, finish: Finish, error: Exception | None) -> RunResult:
        state = self._state
        if self._asking is not None:
            text = "".join(self._asking.partial)
        else:
            text = ""
        if state is not None:
            closed(state, _UNDONE, finish.pending)
            if text and error is None:  # the text before a user, or the clock, ended it
                state.messages.append(AssistantMessage(parts=(TextPart(text=text),)))
        return self.result(finish.reason, finish, error=error)

    async def _kept(self, result: RunResult, journal: Journal) -> None:
        """Save the conversation and close the journal, unless the agent is shut down or the journal itself failed.

        The conversation of an interrupted run is saved by the process that resumes it.
        """
        interrupted = result.stop_reason == "cancelled" and not self._run.cancelling
        if interrupted or isinstance(result.error, (RunError, StoreError)):
            return
        session = self._job.session
        with anyio.move_on_after(_SAVE_SECONDS, shield=True) as patience:
            if result.stop_reason == "waiting" and self._asking is not None:
                try:
                    await journal.waiting(result, self._asking.waiting)
                finally:
                    await self._hooks.waiting()
                return
            if session is not None and (result.steps or result.text):
                await self._host.conversations.save(session, result.messages)
            try:
                await journal.finished(result)
            finally:
                await self._hooks.finished(result)
        if patience.cancelled_caught:
            _log.warning("run %s could not be kept within %g s", self._run.id, _SAVE_SECONDS)


def _passed_on(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a call's `meta` that nested calls inherit: all but its idempotency key."""
    return {name: member for name, member in meta.items() if name != IDEMPOTENCY_KEY}
