"""Submitted runs as a kind of durable job: started, or resumed where their journal ends.

The job engine (`jobs/_worker.py`) assigns runs to workers and handles their deaths; `_stored/session_queue.py` orders
the runs of a session. Knows agents by the method that starts runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, NoReturn, Protocol, TypeAlias, cast, runtime_checkable

import anyio

from toolweave.agent._events import RunResult
from toolweave.agent._journal import OnUnknown
from toolweave.agent._stored.durable import Durable
from toolweave.agent._stored.records import RUNS, STARTS, RunRecord, read_record, read_start, record_of, write_record
from toolweave.agent._stored.session_queue import SessionQueue
from toolweave.agent._stored.status import RunStatuses
from toolweave.agent._workers.handover import Handover, set_handover
from toolweave.agent._workers.resume import resume
from toolweave.agent._workers.spawn import Spawning, tools_of_task
from toolweave.errors import RunError, StoreError
from toolweave.jobs import Handler, Job, JobWorker, Reschedule, WorkBackend, resubmit_jobs, work_jobs
from toolweave.jobs._kind import JobTopic
from toolweave.jobs._queue import HandOver
from toolweave.jobs._worker import MAX_DEATHS, share_suspicion
from toolweave.state import Document

_log = logging.getLogger("toolweave.agent")
_TURN_SECONDS = 5.0
"""Seconds until a run that waits for its session is polled again, for each run ahead of it.

It is delivered at once when the run ahead of it ends; this is for a process that died between the two.
"""
_HELD_SECONDS = 0.5
"""Seconds until a run that another process executes is looked at again."""
_MAX_TURN_SECONDS = 30.0
_Done: TypeAlias = Literal["ended", "waiting"] | None
"""The end of a run in this process; None when another process has it."""


@runtime_checkable
class ForeignAgent(Protocol):
    """An agent of another framework, whose own loop executes its runs: `toolweave.durability.DurableAgent`."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def durable(self) -> Durable:
        """Its persistence in a store."""
        ...

    async def perform(self, record: RunRecord, durable: Durable) -> RunResult:
        """Execute or resume a submitted run, and record its end."""
        ...

    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None: ...


class OwnAgent(Spawning, Protocol):
    """An agent of this library, whose runs a worker starts and resumes: `toolweave.Agent`."""

    def use_backend(self, backend: WorkBackend) -> None:
        """Store its runs in the backend from now on."""
        ...

    async def keep_trying(self) -> None:
        """Retry servers that cannot be reached for as long as the agent is open."""
        ...


_Worked: TypeAlias = OwnAgent | ForeignAgent


async def work_runs(
    agents: Iterable[_Worked],
    backend: WorkBackend,
    *,
    also: Mapping[str, Handler] | None = None,
    concurrency: int = 10,
    on_unknown: OnUnknown | None = None,
    max_deaths: int = MAX_DEATHS,
    grace_seconds: float = 0,
    started: Callable[[], None] | None = None,
) -> None:
    """Execute the runs submitted to these agents until cancelled; unfinished runs are then handed over.

    Enter the agents before to keep their tools open from run to run. A server of an agent that cannot be reached is
    tried again for as long as the agent is open.

    Args:
        agents: The agents, with unique names, also those of other frameworks (`toolweave.durability.durable`); one
            without a store uses the backend from now on.
        backend: The store and the queue.
        also: More handlers, by topic, such as `server.handlers()`.
        concurrency: Maximum number of concurrent runs of an agent in this worker.
        on_unknown: Policy for calls in which a worker died, of runs that were submitted without one: `"error"` gives
            the model an error result, `"rerun"` repeats them, `"ask"` has the run wait for a person; by default that
            of each agent.
        max_deaths: Number of workers that may die of a run until it fails.
        grace_seconds: Seconds that the turns and calls under way may take to end after the cancellation. No further
            ones are begun, and each run is handed over after its last one; those left are cancelled.
        started: Called once the worker accepts runs.

    Raises:
        StoreError: The backend cannot be reached at the start.
        ValueError: Two agents have one name, or one keeps its runs in a store without a queue.
    """
    agents = tuple(agents)
    runs = run_handlers(agents, backend, on_unknown=on_unknown, max_deaths=max_deaths)
    for agent in agents:
        if not isinstance(agent, ForeignAgent):
            await agent.keep_trying()
    handlers: dict[str, Handler] = {**runs, **(also or {})}
    await work_jobs(handlers, backend, concurrency=concurrency, grace_seconds=grace_seconds, started=started)


def run_handlers(
    agents: Iterable[_Worked],
    backend: WorkBackend,
    *,
    on_unknown: OnUnknown | None = None,
    max_deaths: int = MAX_DEATHS,
) -> Mapping[str, JobWorker[Any]]:
    """Return the job handlers for the runs of these agents, by topic; `work_runs` also resubmits lost runs.

    Raises:
        ValueError: Two agents have one name, or one keeps its runs in a store without a queue.
    """
    workers: dict[str, JobWorker[Any]] = {}
    for agent in agents:
        if not isinstance(agent, ForeignAgent) and agent.durable is None:
            agent.use_backend(backend)
        durable = agent.durable
        if durable is None or durable.jobs is None:
            raise ValueError(f"agent {agent.name!r} has a store and no backend; workers need Agent(..., backend=...)")
        if durable.jobs.name in workers:
            raise ValueError(f"two agents are called {agent.name!r}; workers distinguish them by their names")
        kind = _Runs(agent, durable.with_unknown_policy(on_unknown), durable.jobs)
        workers[durable.jobs.name] = JobWorker(kind, max_deaths=max_deaths)
    share_suspicion(workers.values())
    return workers


async def resubmit_runs(agents: Iterable[_Worked], backend: WorkBackend, *, seconds: float = 60.0) -> NoReturn:
    """Resubmit lost runs of these agents: now and about every `seconds`, one worker at a time."""
    await resubmit_jobs(list(run_handlers(agents, backend).values()), seconds=seconds)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A run whose documents were just read.

    Attributes:
        durable: Its persistence, with the documents just read if they stay valid until it starts.
    """

    record: RunRecord
    durable: Durable


class _Runs:
    """The runs of one agent, as a kind of job."""

    records = RUNS

    def __init__(self, agent: _Worked, durable: Durable, topic: JobTopic) -> None:
        self.topic = topic
        self._agent = agent
        self._durable = durable
        self._store = durable.store
        self._running: set[Handover] = set()

    def details(self, key: str) -> Sequence[tuple[str, str]]:
        return [(STARTS, key)]

    def load(self, record: Document, details: Sequence[Document | None] = ()) -> _Loaded:
        run = record_of(record)
        if run.agent != self._agent.name:
            raise StoreError(f"run {run.run_id!r} is one of agent {run.agent!r}")
        if run.session is not None or not details:
            # How a run of a session begins is settled when it has its turn.
            return _Loaded(run, self._durable)
        return _Loaded(run, self._durable.with_record(record, details[0]))

    def has_begun(self, record: _Loaded) -> bool:
        return record.record.status == "running"

    def has_ended(self, record: _Loaded) -> bool:
        return record.record.done

    async def perform(self, record: _Loaded, job: Job) -> None:
        if record.record.status == "waiting":
            # The answer submits it again.
            return
        done = await (self._run(record, job) if record.record.session is None else self._in_turn(record, job))
        if done is None:
            raise Reschedule(_HELD_SECONDS)

    def stop(self) -> None:
        for handover in tuple(self._running):
            handover.request()

    async def cancel(self, record: _Loaded) -> None:
        await RunStatuses(self._store, clock=self._durable.clock).cancel(record.record.run_id)

    async def give_up(self, record: _Loaded, deaths: int) -> None:
        await self._fail(record.record, f"{deaths} workers died while it ran")

    async def sweep(self) -> None:
        """Apply the deadlines of runs that wait for a person."""
        durable = self._durable
        statuses = RunStatuses(self._store, clock=durable.clock, queue=durable.queue)
        for notice in await statuses.apply_deadlines(agent=self._agent.name):
            _log.warning("run %s of agent %r waits for a person: %s", notice.run_id, notice.agent, notice.kind)
            if durable.waiting.notify is None:
                continue
            try:
                await durable.waiting.notify(notice)
            except Exception as exc:  # boundary: the function is the owner's
                _log.error("the notice of run %s was not passed on: %s: %s", notice.run_id, type(exc).__name__, exc)

    async def clean(self, record: _Loaded) -> None:
        await SessionQueue(self._durable, record.record).leave()
        await self._store.write(self.topic.forgotten(record.record.run_id))

    async def _run(self, loaded: _Loaded, job: Job) -> _Done:
        """Execute a run until it ends or waits; return None when another process has it.

        Raises:
            HandOver: This worker stops, and another one continues.
        """
        record = loaded.record
        result: RunResult | None = None
        scope = anyio.CancelScope()
        handover = Handover(scope.cancel)
        self._running.add(handover)
        try:
            # The handover cancels this scope only, so that the cancellation of the worker itself is still seen outside.
            with scope:
                set_handover(handover)
                result = await self._result(record, loaded.durable, job)
        except StoreError:
            # It is resumed when the store is back.
            raise
        except Exception as exc:  # boundary: its record has the error
            # Nobody else would record it: the run did not get as far as its journal, or its journal failed.
            if await self._failed(record, exc):
                return "ended"
            return None
        finally:
            self._running.discard(handover)
        if result is None:
            raise HandOver
        if result.status == "waiting":
            await self._again_if_answered(record.run_id)
            return "waiting"
        return "ended"  # which its journal recorded, and deleted the notes of the job

    async def _result(self, record: RunRecord, durable: Durable, job: Job) -> RunResult:
        agent = self._agent
        if isinstance(agent, ForeignAgent):
            return await agent.perform(record, durable)
        tools = tools_of_task(agent, self._durable, record, job.payload)
        return await (await resume(agent, record.run_id, tools=tools, durable=durable))

    async def _in_turn(self, loaded: _Loaded, job: Job) -> _Done:
        """Do the same once the run is first in its session."""
        queue = SessionQueue(self._durable, loaded.record)
        await queue.join()
        # Delivered again later, and not awaited here: a slot of the worker is for runs that can proceed.
        if ahead := await queue.ahead():
            raise Reschedule(min(_MAX_TURN_SECONDS, _TURN_SECONDS * ahead))
        done: _Done = None
        async with queue.turn() as ours:
            done = await self._run(loaded, job) if ours else None
        if done == "ended":
            # Runs behind one that waits have to wait until it ends.
            await queue.leave()
        return done

    async def _again_if_answered(self, run_id: str) -> None:
        """Have a run delivered again that was answered at once: its job was still queued, so none was added.

        Raises:
            Reschedule: It was.
        """
        record = await read_record(self._store, run_id)
        if record is not None and record.status == "pending":
            raise Reschedule(0)

    async def _failed(self, record: RunRecord, error: Exception) -> bool:
        """Record that a run has failed, if it has not done so itself; return False when another process has it."""
        now = await read_record(self._store, record.run_id)
        if now is not None and not now.done:
            if isinstance(error, RunError):
                # The agent was closed, or another process has it.
                try:
                    await read_start(self._store, now)
                    return False
                except RunError as exc:
                    error = exc
            await self._fail(now, _words(error))
        await self._store.write(self.topic.forgotten(record.run_id))
        return True

    async def _fail(self, record: RunRecord, error: str) -> None:
        """Record the failure of a run that could not record it itself, so that no caller waits for it forever."""
        _log.warning("run %s of agent %r failed: %s", record.run_id, record.agent, error)
        failed = replace(record, status="failed", stop_reason="error", error=error, changed_at=self._durable.clock())
        await write_record(self._store, failed)


def _words(error: Exception) -> str:
    if isinstance(error, ExceptionGroup):
        several: Sequence[Exception] = cast("ExceptionGroup[Exception]", error).exceptions
        return "; ".join(map(str, several))
    return str(error)
