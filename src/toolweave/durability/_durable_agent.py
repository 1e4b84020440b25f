"""`DurableAgent`: an agent of another framework whose runs are kept in a store, resumed, submitted and worked on.

Knows the frameworks by one port, `Framework`.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Literal, Protocol, Self, TypeAlias, TypeVar, get_args

import anyio

from toolweave.agent import (
    Approval,
    Durable,
    OnUnknown,
    RunInfo,
    RunRecord,
    RunResult,
    RunStart,
    RunStatuses,
    SubmittedRun,
    WaitingCall,
)
from toolweave.agent._events import RunStatus
from toolweave.agent._idempotency import run_id_of
from toolweave.agent._stored.records import read_record
from toolweave.agent._stored.waiting import answer_waiting, waiting_calls
from toolweave.agent._workers.submit import submit_run
from toolweave.durability._recorder import CheckedJournal, RunRecorder
from toolweave.errors import RunError
from toolweave.models import UserMessage

UnknownPolicy: TypeAlias = Literal["error", "rerun"]
"""The policy for a call with an unknown outcome: the model reads that, or the call is made again."""

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkInput:
    """The input of a run in the form in which it is kept.

    Attributes:
        text: The text for lists of runs; all of the input if `value` is not set.
        value: The framework's own form as JSON text, or None when the text is all.
    """

    text: str
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkOutcome:
    """The end of a run under a framework's loop, for its record.

    Attributes:
        waits: Whether it waits for a person, and continues under the same id.
        calls: The framework's ids of the calls that wait for an approval.
    """

    text: str = ""
    output: Any = None
    waits: bool = False
    calls: Collection[str] = ()


class Framework(Protocol[ResultT]):
    """One agent of a framework: how its loop is run with a recorder under it."""

    @property
    def name(self) -> str:
        """The framework's name."""
        ...

    def record_input(self, sent: Any, options: Mapping[str, Any]) -> FrameworkInput:
        """Return an input, with the additions of the options, in the form in which it is recorded.

        Raises:
            TypeError: The input has a type that cannot be recorded.
            ValueError: An option does not go together with a durable run.
        """
        ...

    def continues(self, sent: Any) -> bool:
        """Whether an input is an answer to a run that waits, and not the beginning of one."""
        ...

    async def execute(
        self, run_input: FrameworkInput, options: Mapping[str, Any], recorder: RunRecorder, answer: Any
    ) -> ResultT:
        """Run the loop; options of the input are in `run_input`, and `answer` is for a run that waits."""
        ...

    def outcome(self, result: ResultT) -> FrameworkOutcome:
        """Return the record of a result."""
        ...


class DurableAgent(Generic[ResultT]):
    """An agent of another framework whose runs outlive their process; made by `durable`.

    Runs are executed in the process that asks for them (`run`, `resume`), or by workers (`submit`, with a backend).

    Attributes:
        name: The name under which its runs are kept; workers distinguish agents by it.
        durable: Its persistence in a store.
    """

    def __init__(
        self,
        framework: Framework[ResultT],
        durable: Durable,
        *,
        options: Mapping[str, Any],
        repeatable: Collection[str],
    ) -> None:
        self.name: str = durable.agent
        self.durable = durable
        self._framework = framework
        self._options = dict(options)
        self._repeatable = frozenset(repeatable)
        self._entered: list[AsyncExitStack] = []

    async def run(self, sent: Any = None, /, *, run_id: str | None = None, **options: Any) -> ResultT:
        """Run the agent and return its framework's result.

        The same `run_id` is the same run, in any process: it continues where its record ends, and a run that has ended
        returns its result again, with nothing done twice.

        Args:
            sent: The input, as the framework takes it; None continues the run of this id.
            run_id: An id, unique among all runs of the store; without one the run gets an id that only its record has.
            options: The framework's own, for its method `run`; those given to `durable` are the defaults.

        Raises:
            RunError: The run is executed elsewhere now, began with another input, was cancelled, or its record is not
                of what the agent does now.
            StoreError: The store cannot be reached.
            TypeError: The input cannot be kept.
            ValueError: An option does not go together with a durable run.
        """
        if sent is None and run_id is not None and await self._is_known(run_id):
            return await self.resume(run_id, **options)
        if self._framework.continues(sent):
            if run_id is None:
                raise ValueError("an answer to a run that waits needs its run_id")
            await self._check(run_id)
            return await self._execute(self._again(run_id), options, answer=sent)
        start = self._start(sent, {**self._options, **options}, run_id or uuid.uuid4().hex)
        return await self._execute(start, options)

    async def resume(
        self, run_id: str, *, approvals: Mapping[str, bool | Approval] | None = None, **options: Any
    ) -> ResultT:
        """Continue a run that was left behind or waits, or return the result of one that has ended again.

        The input is the recorded one; `options` are as with `run`.

        Args:
            run_id: The run.
            approvals: Answers to calls that wait (`waiting`), by their ids: True, False, or an `Approval`. The same
                answer may be given again. A call without one waits on, and the run with it.
            options: As with `run`.

        Raises:
            RunError: The store has no such run, it is another agent's, no such call waits or it has another answer, or
                as with `run`.
        """
        await self._check(run_id)
        for call_id, given in (approvals or {}).items():
            await self._answer(run_id, call_id, given)
        return await self._execute(self._again(run_id), options)

    async def submit(
        self, sent: Any, /, *, key: str | None = None, on_unknown: UnknownPolicy | None = None, **options: Any
    ) -> SubmittedRun:
        """Submit an input to a worker, on this machine or another, and return a handle of its run.

        Args:
            sent: The input, as the framework takes it.
            key: An idempotency key: submitted with the same one again, it is the same run.
            on_unknown: Policy for calls with an unknown outcome: `"error"` or `"rerun"`; by default the agent's.
            options: Those that belong to the input, such as `message_history`; others are the worker's own.

        Raises:
            RunError: The key belongs to another input.
            StoreError: The store or the queue cannot be reached. With a key it is safe to try again.
            ValueError: The agent has no backend, an option is not the input's, or the policy is unknown.
        """
        if on_unknown is not None:
            check_policy(on_unknown)
        if key is None:
            run_id = uuid.uuid4().hex
        else:
            run_id = run_id_of(self.name, key)
        return await submit_run(self.durable, self._start(sent, options, run_id, on_unknown=on_unknown))

    async def waiting(self, run_id: str) -> Sequence[WaitingCall]:
        """Return the calls of a run that wait for a person's approval and have no answer yet, the oldest first."""
        return await waiting_calls(self.durable.store, run_id)

    async def unfinished(self) -> Sequence[RunInfo]:
        """Return the runs of this agent that have not ended and that no process executes, the oldest first.

        Those of processes that died are `"interrupted"`: resume them.
        """
        return await RunStatuses(self.durable.store, clock=self.durable.clock).interrupted(agent=self.name)

    async def perform(self, record: RunRecord, durable: Durable) -> RunResult:
        """Execute a submitted run in this worker and return its recorded result."""
        ended: list[RunResult] = []
        await self._execute(self._again(record.run_id), {}, durable=durable, ended=ended)
        return ended[0]

    async def __aenter__(self) -> Self:
        stack = AsyncExitStack()
        for kept in (self.durable.store, self.durable.queue):
            if isinstance(kept, AbstractAsyncContextManager):
                await stack.enter_async_context(kept)  # pyright: ignore[reportUnknownArgumentType]
        self._entered.append(stack)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._entered.pop().aclose()

    def __repr__(self) -> str:
        return f"<DurableAgent {self.name!r} of {self._framework.name}>"

    async def _answer(self, run_id: str, call_id: str, given: bool | Approval) -> None:
        if not isinstance(given, (bool, Approval)):  # pyright: ignore[reportUnnecessaryIsInstance] - "no" would be true
            raise TypeError(f"the answer to call {call_id!r} is True, False or an Approval, not {given!r}")
        if isinstance(given, Approval):
            approval = given
        else:
            approval = Approval(approved=given)
        durable = self.durable
        now = durable.clock()
        # without the queue: this process continues the run, and no worker is to take it meanwhile
        await answer_waiting(durable.store, run_id, call_id, approval, queue=None, now=now, resumes=True)

    def _again(self, run_id: str) -> RunStart:
        """Return the start of a run that continues from its journal."""
        return RunStart(run_id=run_id, agent=self.name, messages=(), sent=0)

    def _start(
        self, sent: Any, options: Mapping[str, Any], run_id: str, *, on_unknown: OnUnknown | None = None
    ) -> RunStart:
        run_input = self._framework.record_input(sent, options)
        return RunStart(
            run_id=run_id,
            agent=self.name,
            messages=(UserMessage.of(run_input.text),),
            sent=1,
            meta={"framework": self._framework.name, "input": run_input.value},
            on_unknown=on_unknown,
        )

    async def _execute(
        self,
        start: RunStart,
        options: Mapping[str, Any],
        *,
        durable: Durable | None = None,
        ended: list[RunResult] | None = None,
        answer: Any = None,
    ) -> ResultT:
        kept = durable or self.durable
        journal = CheckedJournal(kept, start.run_id)
        scope = anyio.CancelScope()
        async with journal.held(scope.cancel, sent=start.new_messages, session=start.session):
            began = await journal.started(start)
            recorder = RunRecorder(journal, start.run_id, repeatable=self._repeatable)
            sent = self._input(start, began)
            try:
                with scope:
                    result = await self._loop(sent, options, recorder, answer)
                    # The journal may cancel the run at the request of another process until its result is there, and
                    # not any more while it is recorded.
                    scope.shield = True  # it has ended: nothing is cancelled any more
                    return await self._ended(journal, recorder, result, ended)
            except Exception as exc:
                if not scope.cancel_called:
                    if recorder.fault is None or recorder.failed:
                        await journal.finished(_end(recorder, "failed", error=exc))
                    raise
            error = RunError("was cancelled", run_id=start.run_id, reason="cancelled")
            await journal.finished(_end(recorder, "cancelled", error=error))
        raise error

    async def _loop(
        self, run_input: FrameworkInput, options: Mapping[str, Any], recorder: RunRecorder, answer: Any
    ) -> ResultT:
        """Run the framework's loop; a fault is raised even if the loop swallowed it."""
        try:
            result = await self._framework.execute(run_input, {**self._options, **options}, recorder, answer)
        except Exception:
            if recorder.fault is None:
                raise
        else:
            if recorder.fault is None:
                return result
        raise recorder.fault

    async def _ended(
        self, journal: CheckedJournal, recorder: RunRecorder, result: ResultT, ended: list[RunResult] | None
    ) -> ResultT:
        outcome = self._framework.outcome(result)
        status: RunStatus = "waiting" if outcome.waits else "completed"
        record = _end(recorder, status, text=outcome.text, output=outcome.output)
        if outcome.waits:
            await journal.waiting(record, recorder.waiting(outcome.calls))
        else:
            await journal.finished(record)
        if ended is not None:
            ended.append(record)
        return result

    def _input(self, start: RunStart, began: RunStart) -> FrameworkInput:
        """Return the recorded input.

        Raises:
            RunError: It is another framework's, or another than the one that was given.
        """
        # one without a framework is a text that was given to workers by name: `toolweave runs spawn --agent`
        framework = began.meta.get("framework", self._framework.name)
        if framework != self._framework.name or (start.sent and start.meta != began.meta):
            raise RunError(
                "began with something else; its id, or its key, is taken", run_id=start.run_id, reason="error"
            )
        return FrameworkInput(text=began.messages[-1].text, value=began.meta.get("input"))  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType] - a user's

    async def _is_known(self, run_id: str) -> bool:
        return await read_record(self.durable.store, run_id) is not None

    async def _check(self, run_id: str) -> None:
        record = await read_record(self.durable.store, run_id)
        if record is None:
            raise RunError("is not in the store", run_id=run_id, reason="error")
        if record.agent != self.name:
            message = f"is one of agent {record.agent!r}, not of {self.name!r}; resume it with that agent"
            raise RunError(message, run_id=run_id, reason="error")


def _end(
    recorder: RunRecorder, status: RunStatus, *, text: str = "", output: Any = None, error: Exception | None = None
) -> RunResult:
    reasons = {"completed": "end", "waiting": "waiting", "cancelled": "cancelled", "failed": "error"}
    return RunResult(
        run_id=recorder.run_id,
        text=text,
        output=output,
        usage=recorder.usage,
        steps=recorder.answers,
        status=status,
        stop_reason=reasons[status],  # pyright: ignore[reportArgumentType] - one of these
        error=error,
    )


def check_policy(policy: str) -> None:
    """Refuse a policy that there is not.

    Raises:
        ValueError: The policy is unknown; `"ask"` is only for agents of Toolweave.
    """
    if policy not in get_args(UnknownPolicy):
        raise ValueError(f"on_unknown of a durable agent is 'error' or 'rerun', not {policy!r}")
