"""The handle of one run: await it, iterate over its events, cancel it, answer its approvals.

Its task is in the agent's owner task group; another module holds the loop that it executes.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextvars import ContextVar
from itertools import chain
from typing import Any, Generic, Self, cast

import anyio

from toolweave.agent import _events as events
from toolweave.agent._events import Event, OutT_co, RunResult, RunStatus
from toolweave.agent._lifespan import CLOSE_SECONDS, LifespanPeriod
from toolweave.agent._loop.agent_tools import AgentTools
from toolweave.agent._loop.run_loop import RunLoop
from toolweave.agent._loop.runtime import AgentRuntime, RunRequest
from toolweave.agent._option_checks import ATTENDED, attended_error
from toolweave.agent._questions import GivenAnswer, RunQuestions
from toolweave.agent.approval import Approval, Approvals, Attended
from toolweave.errors import RunError
from toolweave.models import ToolCallPart, Usage

_log = logging.getLogger("toolweave.agent")
_SHUT_DOWN = "the agent was closed"
_LEFT = "its awaiting task was cancelled"
_FOR_PEOPLE = (events.ApprovalRequested, events.ApprovalGiven, events.InputRequested, events.InputGiven)
_current: ContextVar[Run | None] = ContextVar("toolweave-run", default=None)


def current_run() -> Run | None:
    """Return the run whose tool is executing in this context, or None."""
    run = _current.get()
    if run is None or run.done:
        return None
    return run


class Run(Generic[OutT_co]):
    """A run of an agent: awaitable, iterable, and cancelled from anywhere.

    It starts at the first `await`, iteration or `start()`, and executes in a task of the agent. `await run` returns its
    `RunResult` and may be repeated; as with an `asyncio.Task`, cancelling the last task that awaits it cancels it.
    Iterating only observes: it yields the events from the first one on, any number of times, and leaving early or
    being cancelled there does not affect the run. A run ends by itself, by `cancel()`, or with `async with agent`.
    A cancelled run has a result like any other; a failed run raises its error. In a store only `cancel()` marks a run
    as cancelled: a run that ends because its process ends, the agent is closed or its awaiting task is cancelled can
    be resumed.

    Attributes:
        id: Unique.
        agent: The agent's name.
        session: The conversation that it continues, or None.
        parent: The run whose tool started this one, or None.
        depth: Nesting depth: the number of runs above it.
        children: The runs that tools of this one started, by id.
    """

    def __init__(self, runtime: AgentRuntime, request: RunRequest) -> None:
        self.id: str = request.run_id or uuid.uuid4().hex
        self.agent: str = runtime.name
        self.session: str | None = request.session
        self.parent = current_run()
        self.depth: int = request.depth
        if not self.depth and self.parent is not None:
            self.depth = self.parent.depth + 1
        self.children: dict[str, Run] = {}
        self._runtime = runtime
        self._request = request
        self._status: RunStatus = "new"
        self._events: list[Event] = []
        self._changed: anyio.Event | None = None
        self._ended: anyio.Event | None = None
        self._result: RunResult[OutT_co] | None = None
        self._awaiting = 0
        self._cancelled: str | None = None
        self._scope: anyio.CancelScope | None = None
        self._period: LifespanPeriod | None = None
        if request.attended not in ATTENDED:
            raise attended_error(request.attended)
        self._approvals = Approvals(
            runtime.confirm,
            runtime.allowed,
            seconds=request.rules.limits.approval_seconds,
            attended=True if request.attended is None else request.attended,
            above=None if self.parent is None else self.parent._approvals,  # noqa: SLF001 - its own kind
        )
        self._questions = RunQuestions(self.id, self._approvals)
        priced = request.rules.limits.cost is not None
        if self.parent is not None and self.parent._run_loop.priced:  # noqa: SLF001 - its own kind
            priced = True
        self._run_loop = RunLoop(runtime, request, self, self._emit, priced=priced)

    # the handle

    @property
    def status(self) -> RunStatus:
        """The status of the run."""
        return self._status

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._result is not None

    @property
    def result(self) -> RunResult[OutT_co] | None:
        """The result once it has ended, else None; raises nothing."""
        return self._result

    @property
    def final(self) -> Self:
        """The run itself: `await run.final` is `await run`."""
        return self

    @property
    def parent_id(self) -> str | None:
        """The id of the run whose tool started this one, in whichever process."""
        if self.parent is None:
            return self._request.parent_id
        return self.parent.id

    @property
    def tools(self) -> AgentTools | None:
        """Its tools in addition to the agent's, or None."""
        return self._request.tools

    @property
    def attended(self) -> Attended:
        """Whether a person can approve calls."""
        return self._approvals.attended

    @property
    def approvals(self) -> Approvals:
        """The approvals of its calls."""
        return self._approvals

    @property
    def questions(self) -> RunQuestions:
        """The questions of servers in its calls."""
        return self._questions

    @property
    def cancelling(self) -> bool:
        """Whether its cancellation was requested, other than by closing the agent.

        Cancelling the task that awaits a run that can be resumed does not request it.
        """
        if self._cancelled in (None, _SHUT_DOWN):
            return False
        return self._cancelled != _LEFT or not self._run_loop.durable

    @property
    def waiting(self) -> tuple[ToolCallPart, ...]:
        """The calls that wait for a person, those of child runs included."""
        own = self._approvals.waiting
        return own + tuple(chain.from_iterable(child.waiting for child in self.children.values()))

    def start(self) -> Self:
        """Start, if not started; runs of one session execute one after another, in the order in which they start.

        Raises:
            RuntimeError: No event loop is running in this thread.
        """
        if self._status == "new":
            self._ended = anyio.Event()
            self._period = self._runtime.lifespan.join(self._close)
            self._status = "queued"
            if self.parent is not None:
                if not self.parent._runs_in_loop(self._period.loop):  # noqa: SLF001 - its own kind
                    # It was started by a tool in a thread, with another loop.
                    self.parent = None
                else:
                    self.parent._child_started(self)  # noqa: SLF001 - its own kind
            self._period.start_soon(self._drive)
        return self

    def cancel(self, reason: str = "cancelled") -> None:
        """Cancel the run, from any task or thread; does nothing when it has ended. Its status is `"cancelled"`."""
        loop = None if self._period is None else self._period.loop
        if loop is None or _is_running_here(loop):
            self._cancel(reason)
        elif not loop.is_closed():
            # A scope may be cancelled in the thread of its event loop only.
            loop.call_soon_threadsafe(self._cancel, reason)

    def approve(self, call: str | events.ApprovalRequested, *, remember: Any = None, reason: str | None = None) -> bool:
        """Approve a waiting call, of this run or of one that its tools started.

        Args:
            call: The call's id, or the event that asked.
            remember: `"run"` or `"agent"` to allow the tool from now on without asking.
            reason: The reason, for the event.

        Returns:
            False when no such call waits (any more).

        Raises:
            ValueError: Calls of several runs have this id.
        """
        return self._decide(call, Approval(approved=True, remember=remember, reason=reason))

    def deny(self, call: str | events.ApprovalRequested, *, reason: str | None = None) -> bool:
        """Deny a waiting call; the model reads the reason."""
        return self._decide(call, Approval(approved=False, reason=reason))

    def answer(self, question: str | events.InputRequested, answer: GivenAnswer) -> bool:
        """Answer a question of a server, in this run or in one that its tools started.

        Args:
            question: The id of the question, or the event that asked.
            answer: An `ElicitationResult`, or the values of the form, which accepts it.

        Returns:
            False when no such question waits (any more).

        Raises:
            RunError: The values do not fit the form; the question still waits.
            ValueError: Questions of several runs have this id.
        """
        if isinstance(question, events.InputRequested):
            question_id = question.question_id
            found = [run for run in self._with_question(question_id) if run.id == question.run_id]
        else:
            question_id = question
            found = self._with_question(question_id)
        if not found:
            return False
        if len(found) > 1:
            raise ValueError(f"{len(found)} runs wait for answers to {question_id!r}; give the event that asked")
        return found[0].questions.answer(question_id, answer)

    def __await__(self) -> Generator[Any, None, RunResult[OutT_co]]:
        return self.outcome().__await__()

    def __aiter__(self) -> AsyncIterator[Event]:
        return _EventIterator(self)

    def __repr__(self) -> str:
        return f"<Run {self.id} of agent {self.agent!r}, {self._status}>"

    async def outcome(self, *, gone: str = _LEFT) -> RunResult[OutT_co]:
        """Return the result, as `await run` does; `gone` is the reason when the waiting task cancels it."""
        if self._within():
            raise RuntimeError(
                f"run {self.id!r} would wait for itself in a deadlock: it is awaited by one of its tools, "
                "or by a tool of a run whose session it continues"
            )
        self.start()
        ended = self._ended
        period = self._period
        if not self.done and ended is not None and period is not None:
            if not _is_running_here(period.loop):
                raise RuntimeError(f"run {self.id!r} runs in another event loop; await it there")
            # Several tasks may await a run. Only when the last of them is cancelled is the run cancelled, because a run
            # that nobody awaits any more was started for them.
            self._awaiting += 1
            try:
                await ended.wait()
            except anyio.get_cancelled_exc_class():
                if self._awaiting == 1 and not self.done:
                    self._cancel(gone)
                    with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_SECONDS):
                        # Bounded and shielded: the caller is cancelled already, and yet no server process may outlive
                        # it.
                        await ended.wait()
                        # It also closes the toolsets of this run alone.
                        await period.ended()
                raise
            finally:
                self._awaiting -= 1
        if period is not None and _is_running_here(period.loop):
            await period.ended()
        result = cast("RunResult[OutT_co]", self._result)
        if result.error is not None:
            raise result.error
        return result

    async def stream_text(self) -> AsyncGenerator[str, None]:
        """Yield the model's text, piece by piece; leaving early cancels the run.

        Raises:
            Exception: The error that made the run fail.
        """
        try:
            async for event in self:
                if isinstance(event, events.TextDelta):
                    yield event.text
            await self
        finally:
            if not self.done:
                self.cancel(_LEFT)

    async def event(self, number: int) -> Event | None:
        """Return the event of this number, waiting for it; None after the last."""
        self.start()
        while number >= len(self._events):
            if self.done:
                return None
            if self._changed is None:
                self._changed = anyio.Event()
            await self._changed.wait()
        return self._events[number]

    def _within(self) -> bool:
        run = current_run()
        while run is not None:
            if run is self or self._follows(run):
                return True
            run = run.parent
        return False

    def _follows(self, run: Run) -> bool:
        """Whether `run` waits in the session for the end of this one."""
        if self.session is None or self.done:
            return False
        return runtime_of(run) is self._runtime and self.session == run.session

    def _cancel(self, reason: str) -> None:
        if self.done or self._cancelled is not None:
            return
        self._cancelled = reason
        # Children first: a child that sees its parent end would report an interrupted call instead of a cancelled run.
        for child in self.children.values():
            child.cancel(reason)
        if self._status == "new":
            self._end(RunResult(run_id=self.id, stop_reason="cancelled", status="cancelled"))
        elif self._scope is not None:
            self._scope.cancel()

    def _close(self) -> None:
        self._cancel(_SHUT_DOWN)

    def _decide(self, call: str | events.ApprovalRequested, approval: Approval) -> bool:
        if isinstance(call, events.ApprovalRequested):
            call_id = call.call.id
            found = [run for run in self._asking(call_id) if run.id == call.run_id]
        else:
            call_id = call
            found = self._asking(call_id)
        if not found:
            return False
        if len(found) > 1:
            # The ids of providers are not unique over runs.
            raise ValueError(f"{len(found)} runs wait for a call with the id {call_id!r}; give the event that asked")
        return found[0].approvals.answer(call_id, approval)

    def _asking(self, call_id: str) -> list[Run]:
        found: list[Run] = []
        if any(call.id == call_id for call in self._approvals.waiting):
            found.append(self)
        for child in self.children.values():
            found += child._asking(call_id)  # noqa: SLF001 - its own kind
        return found

    def _with_question(self, question_id: str) -> list[Run]:
        found: list[Run] = []
        if self._questions.waits(question_id):
            found.append(self)
        for child in self.children.values():
            found += child._with_question(question_id)  # noqa: SLF001 - its own kind
        return found

    # reports of child runs

    def _runs_in_loop(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether it runs in this event loop."""
        return self._period is not None and self._period.loop is loop

    def _child_started(self, child: Run) -> None:
        """Register a run that a tool of this one started."""
        self.children[child.id] = child
        self._emit(events.ChildStarted(run_id=self.id, step=self._run_loop.step, child_id=child.id, agent=child.agent))

    def _child_ended(self, child: Run, result: RunResult) -> None:
        """Register the end of a child run; its usage also counts for this one."""
        self.count(child.id, result.usage)
        self._emit(events.ChildFinished(run_id=self.id, step=self._run_loop.step, child_id=child.id, result=result))

    def count(self, run_id: str, took: Usage) -> None:
        """Add the usage of a child run, in whichever process; once for each run id."""
        self._run_loop.count_child(run_id, took)

    def _emit(self, event: Event) -> None:
        """Publish an event to the run's iterators; one that concerns a person also reaches the parent's."""
        # Events are kept for the life of the run: an iterator that starts late reads all of them from the first.
        if self.done:
            return
        self._events.append(event)
        if self._changed is not None:
            self._changed.set()
            self._changed = None
        # A person watches the run at the top, so a question of any run below has to reach it.
        if self.parent is not None and isinstance(event, _FOR_PEOPLE):
            self.parent._emit(event)  # noqa: SLF001 - the same

    # its task

    async def _drive(self) -> None:
        _current.set(self)
        runtime = self._runtime
        period = cast("LifespanPeriod", self._period)
        result: RunResult | None = None
        # Entered before the lock is acquired, so that a waiting run keeps the state of its session alive.
        session_state = runtime.sessions.enter(self.session)
        try:
            with anyio.CancelScope() as self._scope:
                if self._cancelled is not None:
                    self._scope.cancel()
                async with session_state.turn:
                    self._status = "running"
                    result = await self._run_loop.drive(session_state, period)
        except Exception as exc:
            # Boundary: any error that ends a run is raised to its awaiters.
            result = self._run_loop.result("error", error=exc)
        finally:
            runtime.sessions.leave(session_state)
            period.leave(self._close)
            self._end(result or self._run_loop.result("cancelled"))

    def _end(self, result: RunResult) -> None:
        if self.done:
            return
        # its caller reads why
        is_refused = isinstance(result.error, RunError) and not self._run_loop.began
        if result.error is not None and not is_refused:
            _log.warning("run %s of agent %r failed: %s", self.id, self.agent, result.error)
        self._status = result.status
        self._emit(events.RunFinished(run_id=self.id, step=self._run_loop.step, result=result))
        self._result = result
        if self._changed is not None:
            self._changed.set()
        if self._ended is not None:
            self._ended.set()
            if self.parent is not None:
                self.parent._child_ended(self, result)  # noqa: SLF001 - the same


def runtime_of(run: Run) -> AgentRuntime:
    """Return the runtime that a run shares with the other runs of its agent."""
    return run._runtime  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the accessor of this module


class _EventIterator:
    """An iterator over a run's events, from the first."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._next = 0

    def __aiter__(self) -> _EventIterator:
        return self

    async def __anext__(self) -> Event:
        event = await self._run.event(self._next)
        if event is None:
            raise StopAsyncIteration
        self._next += 1
        return event


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
