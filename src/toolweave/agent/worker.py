"""What a worker does with submitted runs: begins or goes on with each where its journal ends, one process at a time.

Knows agents by how their runs are begun, and a queue by its port. The lease of a run decides who runs it.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, cast

import anyio

from toolweave.agent.agent import Agent
from toolweave.agent.durable import Durable, OnUnknown
from toolweave.agent.lease import is_living
from toolweave.agent.line import Line
from toolweave.agent.records import (
    LEASES,
    RUNS,
    STARTS,
    RunRecord,
    pages,
    read_record,
    read_start,
    record_of,
    write_record,
)
from toolweave.agent.resume import resume
from toolweave.agent.spawn import tools_of_task
from toolweave.agent.status import CANCELS, RunStatuses
from toolweave.agent.submit import DEATHS, SUBMITTED, cleared, enqueue, submitted_key, topic_of
from toolweave.errors import RunError, StoreError
from toolweave.state import Document
from toolweave.work import Handler, Job, Later, WorkBackend

__all__ = ["DEATHS", "resubmit_runs", "run_handlers", "submit_lost", "work_runs"]

_log = logging.getLogger("toolweave.agent")
_HELD_SECONDS = 2.0
"""How long until a run that goes on elsewhere is looked at again."""
_SOON_SECONDS = 0.5
"""The same for one whose worker is thought dead."""
_TURN_SECONDS = 0.5
"""The same for one that waits in the line of its session, for each that is before it; thirty seconds at most."""
MOST_DEATHS = 3
"""Number of dead workers after which a run fails."""
_SUSPICIOUS_DEATHS = 2
"""From how many on it goes on beside no other that workers died of, since all that a dead worker did is suspect."""
_FORGET_SECONDS = 3600.0
_SWEEPS = "run-sweeps"
_SWEEP_SECONDS = 60.0


async def work_runs(
    agents: Iterable[Agent],
    backend: WorkBackend,
    *,
    also: Mapping[str, Handler] | None = None,
    concurrency: int = 10,
    on_unknown: OnUnknown | None = None,
    most_deaths: int = MOST_DEATHS,
    started: Callable[[], None] | None = None,
) -> None:
    """Do what is submitted to these agents until this is cancelled; what is not done then goes elsewhere at once.

    Enter the agents before to keep their tools open from run to run.

    Args:
        agents: By their names they are told apart; one that keeps nothing yet keeps it in the backend from now on.
        backend: Where the queue is.
        also: More handlers, by topic.
        concurrency: How many runs of an agent go on here at the same time.
        on_unknown: What is done about calls whose outcome nobody knows, since a worker died in them, of runs that were
            not submitted with an answer of their own: `"error"` tells the model so, `"rerun"` makes them again, `"ask"`
            refuses them, as nobody is there; by default what each agent was made with.
        most_deaths: How many workers may die of a run until it fails.
        started: Called when runs are taken.

    Raises:
        StoreError: The backend cannot be reached at the start.
        ValueError: Two agents have one name, or one keeps its runs in a store without a queue.
    """
    known = list(agents)
    handlers = {
        **run_handlers(known, backend, on_unknown=on_unknown, most_deaths=most_deaths),
        **(also or {}),
    }
    failure: Exception | None = None
    async with backend, anyio.create_task_group() as tasks:
        tasks.start_soon(resubmit_runs, known, backend)
        try:
            await backend.queue.work(handlers, concurrency=concurrency, started=started)
        except Exception as exc:  # boundary: raised below, a task group would wrap it
            failure = exc
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


def run_handlers(
    agents: Iterable[Agent],
    backend: WorkBackend,
    *,
    on_unknown: OnUnknown | None = None,
    most_deaths: int = MOST_DEATHS,
) -> Mapping[str, Handler]:
    """Return what does the runs of these agents, by topic; `work_runs` looks after lost ones, too.

    Raises:
        ValueError: Two agents have one name, or one keeps its runs in a store without a queue.
    """
    handlers: dict[str, Handler] = {}
    suspect = anyio.Lock()
    for agent in agents:
        if agent.durable is None:
            agent.keep_in(backend)
        durable = agent.durable
        if durable is None or durable.queue is None:
            raise ValueError(f"agent {agent.name!r} has a store and no backend; workers need Agent(..., backend=...)")
        if topic_of(agent.name) in handlers:
            raise ValueError(f"two agents are called {agent.name!r}; workers tell them apart by their names")
        handlers[topic_of(agent.name)] = _Runs(agent, durable.with_unknown(on_unknown), suspect, most_deaths).handle
    return handlers


async def resubmit_runs(agents: Iterable[Agent], backend: WorkBackend, *, seconds: float = _SWEEP_SECONDS) -> NoReturn:
    """Submit lost runs of these agents anew: now and about every so many seconds, one worker at a time."""
    known = list(agents)
    first = True
    while True:
        for agent in known:
            try:
                if first or await backend.store.put(_SWEEPS, agent.name, True, ttl=seconds * 0.9, expect=0) is not None:
                    await submit_lost(agent)
            except StoreError as exc:
                _log.warning("lost runs of agent %r cannot be looked for: %s", agent.name, exc)
        first = False
        await anyio.sleep(seconds * random.uniform(0.75, 1.25))  # noqa: S311 - so that workers do not look at once


async def submit_lost(agent: Agent) -> int:
    """Submit the runs anew that were submitted, have not ended, go on nowhere and wait in no queue; return how many.

    What waits in the queue is not read: there may be much of it.

    Raises:
        StoreError: The store or the queue cannot be reached.
    """
    durable, lost = agent.durable, 0
    if durable is None or durable.queue is None:
        return lost
    prefix = submitted_key(agent.name, "")
    async for page in pages(durable.store, SUBMITTED, prefix):
        noted = {one.key.removeprefix(prefix): one for one in page}
        waiting = set(await durable.queue.waiting(topic_of(agent.name), list(noted))) if noted else set[str]()
        gone = [run_id for run_id in noted if run_id not in waiting]
        found = await durable.store.read([(collection, run_id) for collection in (RUNS, LEASES) for run_id in gone])
        for run_id, run, lease in zip(gone, found[: len(gone)], found[len(gone) :], strict=True):
            note = noted[run_id]
            if await _has_to_go_on(durable, note, run) and not is_living(lease):
                await enqueue(durable, run_id, note.value["about"])
                lost += 1
    return lost


async def _has_to_go_on(durable: Durable, note: Document, run: Document | None) -> bool:
    """Whether a run that was submitted has not ended; the note of one that has, or is gone, is deleted."""
    try:
        record = None if run is None else record_of(run)
    except StoreError:
        return False  # a newer version wrote it, and will do it
    if record is None and durable.clock() - note.value["at"] < _FORGET_SECONDS:
        return False  # it is being submitted
    if record is None or record.done:
        await durable.store.delete(SUBMITTED, note.key, expect=note.revision)
        return False
    return True


class _Runs:
    """Does the runs of one agent; `suspect` is held, by one of all agents, for a run that workers died of."""

    def __init__(self, agent: Agent, durable: Durable, suspect: anyio.Lock, most_deaths: int) -> None:
        self._agent = agent
        self._durable = durable
        self._store = durable.store
        self._suspect = suspect
        self._most_deaths = most_deaths

    async def handle(self, job: Job) -> None:
        names = [(collection, job.key) for collection in (RUNS, STARTS, DEATHS, LEASES, CANCELS)]
        found, start, dead, lease, cancel = await self._store.read(names)
        record = self._record(job, found)
        if record is None or found is None:
            return
        # how a run of a session begins is settled when it has its turn
        durable = self._durable if record.session is not None else self._durable.knowing(found, start)
        line = Line(self._durable, record)
        deaths = await self._deaths(record, job, dead, lease)
        if record.done:
            await self._ended(record, line)
        elif is_living(lease):
            # whoever has it may die, or be dead and not known to be
            raise Later(_SOON_SECONDS if job.deaths else _HELD_SECONDS)
        elif cancel is not None:
            await RunStatuses(self._store, clock=self._durable.clock).cancel(record.run_id)
            await self._ended(record, line)
        elif deaths >= self._most_deaths:
            await self._fail(record, f"{deaths} workers died while it ran")
            await self._ended(record, line)
        elif deaths >= _SUSPICIOUS_DEATHS:
            await self._quarantined(record, job, line, durable)
        else:
            await self._take_turn(record, job, line, durable)

    async def _deaths(self, record: RunRecord, job: Job, dead: Document | None, lease: Document | None) -> int:
        """Return how many workers died while this run went on; who was only lost for a while counts once at most."""
        known: dict[str, Any] = {"deaths": 0, "holder": None} if dead is None else dead.value
        holder = None if lease is None else lease.value["holder"]
        if not job.deaths or (holder is not None and holder == known["holder"]):
            return known["deaths"]
        deaths: int = known["deaths"] + 1
        counted = {"deaths": deaths, "holder": holder}
        await self._store.put(DEATHS, record.run_id, counted, ttl=self._durable.keep_seconds)
        return deaths

    async def _quarantined(self, record: RunRecord, job: Job, line: Line, durable: Durable) -> None:
        """Go on with a run that workers die of, or one that was beside such a one: never two of them here at once."""
        if self._suspect.locked():
            raise Later(random.uniform(1, 5))  # noqa: S311 - so that they come apart
        async with self._suspect:
            await self._take_turn(record, job, line, durable)

    def _record(self, job: Job, found: Document | None) -> RunRecord | None:
        problem = None if found is not None else f"run {job.key!r} is not in the store"
        try:
            record = None if found is None else record_of(found)
            if record is not None and record.agent != self._agent.name:
                problem = f"run {job.key!r} is one of agent {record.agent!r}"
        except StoreError as exc:  # what is readable was read: a newer version wrote it
            record, problem = None, str(exc)
        if problem is not None:
            _log.warning("a job of agent %r was dropped: %s", self._agent.name, problem)
        return None if problem is not None else record

    async def _take_turn(self, record: RunRecord, job: Job, line: Line, durable: Durable) -> None:
        await line.join()
        if ahead := await line.ahead():
            raise Later(min(30.0, _TURN_SECONDS * ahead))
        done = False
        async with line.turn() as ours:
            done = ours and await self._run(record, job, durable)
        if not done:
            raise Later(_TURN_SECONDS)
        await line.leave()

    async def _run(self, record: RunRecord, job: Job, durable: Durable) -> bool:
        """Go on with a run until it ends; return whether it has, False when it goes on elsewhere."""
        try:
            tools = tools_of_task(self._agent, self._durable, record, job.about)
            await (await resume(self._agent, record.run_id, tools=tools, durable=durable))
        except StoreError:
            raise  # it goes on when the store is back
        except Exception as exc:  # boundary: its record says what made it fail
            return await self._failed(record, exc)
        return True  # which its journal recorded, and cleared what stands for it

    async def _failed(self, record: RunRecord, error: Exception) -> bool:
        """Record that a run has failed, if it has not done so itself; return False when it goes on elsewhere."""
        now = await read_record(self._store, record.run_id)
        if now is not None and not now.done:
            if isinstance(error, RunError):  # the agent was closed, or another process has it
                try:
                    await read_start(self._store, now)
                    return False
                except RunError as exc:
                    error = exc
            await self._fail(now, _words(error))
        await self._clear(record)
        return True

    async def _fail(self, record: RunRecord, error: str) -> None:
        """Record that a run failed that could not do so itself, so that nobody waits for it for ever."""
        _log.warning("run %s of agent %r failed: %s", record.run_id, record.agent, error)
        failed = replace(record, status="failed", stop_reason="error", error=error, changed_at=self._durable.clock())
        await write_record(self._store, failed, ttl=self._durable.keep_seconds)

    async def _ended(self, record: RunRecord, line: Line) -> None:
        await line.leave()
        await self._clear(record)

    async def _clear(self, record: RunRecord) -> None:
        await self._store.write(cleared(record.agent, record.run_id))


def _words(error: Exception) -> str:
    if isinstance(error, ExceptionGroup):
        several: Sequence[Exception] = cast("ExceptionGroup[Exception]", error).exceptions
        return "; ".join(map(str, several))
    return str(error)
