"""The engine of durable jobs, the same for every kind: leases, and recovery when a worker dies.

The store is the truth, and a delivery from the queue only says that it is worth a look. So every delivery reads what
the store knows of its job, and decides from that alone:

- A job that has ended is cleaned up. One whose lease a living process holds comes again later: its worker may be slow,
  or dead and not known to be. The lease is what keeps two workers from doing it at the same time.
- A death is counted when the queue says that a worker died (or was silent for too long) and that worker's lease was
  not counted before: many deliveries may report one death. From two on, a job is done beside no other that workers
  died of, since all that a dead worker did is suspect; after three it is given up.
- Everything else is done. What may not be done twice is known to the kind.

A submitted job is noted in the store until it has ended. One worker at a time reads these notes, about once a minute,
and submits again jobs that wait in no queue and have no worker. Knows neither agents nor servers.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NoReturn, TypeVar

import anyio

from toolweave._json_types import Json
from toolweave.errors import StoreError
from toolweave.jobs._kind import SUBMITTED_SIGNAL, JobKind, JobTopic
from toolweave.jobs._lease import is_living
from toolweave.jobs._queue import Handler, Job, Reschedule, WorkBackend
from toolweave.state import Document, iter_pages, listening

R = TypeVar("R")

_log = logging.getLogger("toolweave.jobs")

HELD_SECONDS = 2.0
"""Seconds until a job that is done elsewhere is looked at again."""
_SOON_SECONDS = 0.5
"""Seconds until a run whose worker may be dead is polled again."""
MAX_DEATHS = 3
"""Number of dead workers after which a job is given up."""
_SUSPICIOUS_DEATHS = 2
_FORGET_SECONDS = 3600.0
"""Seconds after which a note without a record is no longer that of a job which is being submitted."""
_SWEEP_SECONDS = 60.0


class JobWorker(Generic[R]):
    """Does the jobs of one topic; a `Handler`.

    Args:
        kind: What the jobs are.
        max_deaths: How many workers may die of a job until it is given up.

    Attributes:
        topic: Where they are noted.
        suspect: Held while a job is done that workers died of; one for all that work in a process.
    """

    def __init__(self, kind: JobKind[R], *, max_deaths: int = MAX_DEATHS) -> None:
        self.topic: JobTopic = kind.topic
        self.suspect: anyio.Lock = anyio.Lock()
        self._kind = kind
        self._max_deaths = max_deaths

    async def do(self, job: Job) -> None:
        """Bring a job to its end, or see that it has one.

        Raises:
            Later: Another worker does it, or it is not yet its turn: it is to be delivered again.
            StoreError: It has not ended, and the store cannot be reached: the same.
        """
        kind = self._kind
        notes = self.topic.notes
        key = job.key
        names = [(kind.records, key), *kind.details(key)]
        noted = [(notes.leases, key), (notes.deaths, key), (notes.cancels, key)]
        # One read for everything, in one snapshot where the store has them: the record must not be from before the
        # lease.
        found, *details, lease, dead, cancel = await self.topic.store.read([*names, *noted])
        try:
            record = kind.load(_there(notes.name, key, found), details)
        except StoreError as exc:
            _log.warning("a job of %s was dropped: %s", self.topic, exc)
            return
        if kind.has_ended(record):
            await kind.clean(record)
            return
        if lease is None and job.after_outage and kind.has_begun(record):
            # Nobody could renew a lease during an outage, so one that expired does not show that its holder died. A
            # holder that lives renews it within seconds; a worker that acquired it earlier would make the outcome of
            # the call under way unknown.
            raise Reschedule(_SOON_SECONDS)
        # Counted before the lease is looked at: a delivery reports a death once, and may find that
        # another worker has begun already.
        deaths = await self._deaths(job, dead, lease)
        if is_living(lease):
            # After a death the lease ends within seconds, or at once on this machine; otherwise its worker is at work
            # so nothing is urgent.
            raise Reschedule(_SOON_SECONDS if job.deaths else HELD_SECONDS)
        if cancel is not None:
            await kind.cancel(record)
            await kind.clean(record)
        elif deaths >= self._max_deaths:
            await kind.give_up(record, deaths)
            await kind.clean(record)
        # One death may be a deployment or a machine that failed. Two of the same job make it likely that the job kills
        # its worker, and jobs beside it would die with it.
        elif deaths >= _SUSPICIOUS_DEATHS:
            await self._perform_alone(record, job)
        else:
            await kind.perform(record, job)

    __call__ = do

    def stop(self) -> None:
        """Have running jobs handed over as soon as nothing is lost by that."""
        self._kind.stop()

    async def submit_lost(self) -> int:
        """Resubmit the jobs that have not ended, have no worker and wait in no queue; return how many.

        The records of those that wait are not read: there may be many.

        Raises:
            StoreError: The store or the queue cannot be reached.
        """
        kind = self._kind
        topic = self.topic
        lost = 0
        async for page in iter_pages(topic.store, topic.notes.submitted, topic.prefix):
            noted = {one.key.removeprefix(topic.prefix): one for one in page}
            # The queue is asked before the records: a job that is taken from the queue in between has a lease by then,
            # or ended, and is seen so below.
            if noted:
                waiting = set(await topic.queue.waiting(topic.name, list(noted)))
            else:
                waiting = set[str]()
            gone = [key for key in noted if key not in waiting]
            names = [(collection, key) for collection in (kind.records, topic.notes.leases) for key in gone]
            found = await topic.store.read(names)
            for key, record, lease in zip(gone, found[: len(gone)], found[len(gone) :], strict=True):
                # A living lease: a worker has the job, although its delivery is in no queue any more.
                if not is_living(lease) and await self._has_to_be_done(noted[key], record):
                    await topic.submit(key, noted[key].value["payload"])
                    lost += 1
        return lost

    async def sweep(self) -> None:
        """Resubmit lost jobs, and do the periodic work for those that wait.

        Raises:
            StoreError: The store or the queue cannot be reached.
        """
        await self.submit_lost()
        await self._kind.sweep()

    async def _deaths(self, job: Job, dead: Document | None, lease: Document | None) -> int:
        """Return how many workers died of a job; one that was only unreachable for a while counts once at most."""
        known: Json = {"deaths": 0, "holder": None} if dead is None else dead.value
        holder = None if lease is None else lease.value["holder"]
        deaths: int = known["deaths"]
        is_known = holder is not None and holder == known["holder"]
        if not job.deaths or is_known:
            return deaths
        # The holder of the lease stands for the death: every delivery that reports it finds the same holder noted and
        # does not count again.
        counted = {"deaths": deaths + 1, "holder": holder}
        await self.topic.store.put(self.topic.notes.deaths, job.key, counted, ttl=self.topic.keep_seconds)
        return deaths + 1

    async def _perform_alone(self, record: R, job: Job) -> None:
        """Do a job that workers died of: never two such at the same time, so that none dies of another's fault."""
        if self.suspect.locked():
            # It takes no slot while it waits for the other one, which may run for hours.
            raise Reschedule(random.uniform(1, 5))  # noqa: S311 - so that they come apart
        async with self.suspect:
            await self._kind.perform(record, job)

    async def _has_to_be_done(self, note: Document, found: Document | None) -> bool:
        """Return whether a submitted job has not ended; the notes of one that has, or is gone, are deleted."""
        topic = self.topic
        if found is None:
            # else it is being submitted
            if topic.clock() - note.value["at"] >= _FORGET_SECONDS:
                await topic.store.delete(topic.notes.submitted, note.key, expect=note.revision)
            return False
        try:
            record = self._kind.load(found)
        except StoreError:
            return False  # another version wrote it, and will do it
        if self._kind.has_ended(record):
            await self._kind.clean(record)
            return False
        return True


async def work_jobs(
    handlers: Mapping[str, Handler],
    backend: WorkBackend,
    *,
    concurrency: int = 10,
    grace_seconds: float = 0,
    started: Callable[[], None] | None = None,
) -> None:
    """Do jobs until this is cancelled, and resubmit those without a worker; see `WorkQueue.work`.

    Raises:
        StoreError: The backend cannot be reached at the start.
    """
    workers: list[JobWorker[Any]] = [one for one in handlers.values() if isinstance(one, JobWorker)]
    # For all topics of the process: a job that kills it takes the jobs of the other topics along.
    share_suspicion(workers)
    failure: Exception | None = None
    async with backend, anyio.create_task_group() as tasks:
        tasks.start_soon(resubmit_jobs, workers)
        tasks.start_soon(_stop_when_cancelled, workers)
        try:
            await backend.queue.work(handlers, concurrency=concurrency, grace_seconds=grace_seconds, started=started)
        except Exception as exc:  # boundary: raised below, a task group would wrap it
            failure = exc
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _stop_when_cancelled(workers: Sequence[JobWorker[Any]]) -> None:
    try:
        await anyio.sleep_forever()
    finally:  # beside the queue, which lets jobs end
        for one in workers:
            one.stop()


async def resubmit_jobs(workers: Sequence[JobWorker[Any]], *, seconds: float = _SWEEP_SECONDS) -> NoReturn:
    """Resubmit jobs without a worker: now, at a signal, and about every so many seconds by one worker at a time."""
    if not workers:
        await anyio.sleep_forever()
    asked = True
    async with listening(workers[0].topic.store, SUBMITTED_SIGNAL) as listener:
        while True:
            for one in workers:
                await _sweep(one, seconds * 0.9, asked=asked)
            # so that workers do not look at once
            asked = await listener.wait(seconds * random.uniform(0.75, 1.25))  # noqa: S311


async def _sweep(worker: JobWorker[Any], seconds: float, *, asked: bool) -> None:
    """Resubmit the lost jobs of a topic, if no other worker has done so in these seconds, or if this is asked for."""
    topic = worker.topic
    try:
        # A document that expires is the election: who writes it sweeps, the others find it there. The first sweep of a
        # process is made in any case, so that after a crash of all workers nothing waits for a minute. So is one that a
        # signal requests: its sender may have written after the last sweep.
        if asked or await topic.store.put(topic.notes.sweeps, topic.owner, True, ttl=seconds, expect=0) is not None:
            await worker.sweep()
    except StoreError as exc:
        _log.warning("lost %ss of %s cannot be looked for: %s", topic.notes.name, topic, exc)


def share_suspicion(workers: Iterable[JobWorker[Any]]) -> None:
    """Have workers of one process do no two jobs that workers died of at the same time."""
    suspect = anyio.Lock()
    for one in workers:
        one.suspect = suspect


def _there(what: str, key: str, found: Document | None) -> Document:
    if found is None:
        raise StoreError(f"{what} {key!r} is not in the store")
    return found
