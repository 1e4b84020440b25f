"""The port of a kind of durable job, and the notes that a store has of the jobs of one topic.

Knows a store and a queue by their ports; nothing of what the jobs do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from urllib.parse import quote

import anyio

from toolweave._json_types import JsonObject
from toolweave.jobs._backoff import Sleep
from toolweave.jobs._lease import LEASE_SECONDS, Lease
from toolweave.jobs._queue import Job, WorkQueue
from toolweave.state import Change, Delete, Document, Put, Store

R = TypeVar("R")

SUBMITTED_SIGNAL = "jobs-submitted"
"""The name of the signal that a job was noted as submitted by a process without the queue."""


@dataclass(frozen=True, slots=True)
class JobCollections:
    """The collections of a store in which the jobs of a kind are noted.

    Attributes:
        name: The kind: `run` or `task`.
        owner: The kind of the owner of such a job, for messages: `agent` or `server`.
        leases: The worker of a job, by its key; absent while no worker has it.
        deaths: How many workers died of a job, by its key.
        cancels: Keys of jobs that were to be cancelled while they were done, for workers that take them over.
        submitted: Jobs that workers are to do and that have not ended, below the name of what they belong to.
        sweeps: When jobs without a worker were looked for.
        topics: How the names of the topics in the queue begin, before the name of the owner.
    """

    name: str
    owner: str
    leases: str = field(init=False)
    deaths: str = field(init=False)
    cancels: str = field(init=False)
    submitted: str = field(init=False)
    sweeps: str = field(init=False)
    topics: str = field(init=False)

    def __post_init__(self) -> None:
        for what in ("leases", "deaths", "cancels", "submitted", "sweeps"):
            object.__setattr__(self, what, f"{self.name}-{what}")
        object.__setattr__(self, "topics", f"{self.name}s:")


def owner_prefix(owner: str) -> str:
    """Return how the keys of the submitted jobs of an agent or server begin."""
    # Quoted, so that the slash is the only one: the jobs of `a` must not be found under the prefix of `a/b`, nor the
    # reverse.
    return f"{quote(owner, safe='')}/"


def submitted_note(
    notes: JobCollections, owner: str, key: str, *, at: float, ttl: float, payload: JsonObject | None = None
) -> Put:
    """Return the change that notes a job as submitted, from which a worker gives it to the queue."""
    noted = {"at": at, "payload": dict(payload or {})}
    return Put(collection=notes.submitted, key=owner_prefix(owner) + key, value=noted, ttl=ttl)


class JobTopic:
    """The jobs of one kind that belong to one agent or server: where they are noted, and the queue that wakes workers.

    A job that is submitted stays noted in the store until it has ended, so that a queue which lost its jobs is given
    them again.

    Args:
        notes: Where they are noted.
        owner: The name of what they belong to.
        store: Where their records are.
        queue: Wakes their workers.
        clock: Returns the time in seconds.
        keep_seconds: Seconds that a note is kept.

    Attributes:
        name: The topic in the queue.
    """

    def __init__(
        self,
        notes: JobCollections,
        owner: str,
        *,
        store: Store,
        queue: WorkQueue,
        clock: Callable[[], float] = time.time,
        keep_seconds: float,
    ) -> None:
        self.name: str = notes.topics + owner
        self.notes = notes
        self.owner = owner
        self.store = store
        self.queue = queue
        self.clock = clock
        self.keep_seconds = keep_seconds
        self.prefix: str = owner_prefix(owner)

    def job(self, key: str, payload: JsonObject | None = None) -> Job:
        """Return the job to put into the queue."""
        return Job(topic=self.name, key=key, payload=dict(payload or {}))

    def note(self, key: str, payload: JsonObject | None = None, *, ttl: float | None = None) -> Put:
        """Return the change that notes a job as submitted, to be written together with its record.

        It is kept for `ttl` seconds, `keep_seconds` by default.
        """
        ttl = ttl or self.keep_seconds
        return submitted_note(self.notes, self.owner, key, at=self.clock(), ttl=ttl, payload=payload)

    def forgotten(self, key: str) -> Sequence[Change]:
        """Return the changes that forget all notes of a job, to be written together with its end."""
        notes = self.notes
        return [
            Delete(collection=notes.submitted, key=self.prefix + key),
            Delete(collection=notes.deaths, key=key),
            Delete(collection=notes.cancels, key=key),
        ]

    async def submit(self, key: str, payload: JsonObject | None = None) -> None:
        """Note a job whose record is in the store, and have it done; harmless when it waits already.

        Raises:
            StoreError: The store or the queue cannot be reached.
        """
        # Noted first: if this process dies between the two, a sweep of any worker finds the note and submits the job.
        # The other order could lose the job together with the queue.
        await self.store.write([self.note(key, payload)])
        await self.queue.submit(self.job(key, payload))

    async def hasten(self, key: str) -> None:
        """Have a job that is noted as submitted delivered now, if it is.

        Raises:
            StoreError: The store or the queue cannot be reached.
        """
        note = await self.store.get(self.notes.submitted, self.prefix + key)
        if note is not None:
            await self.queue.hasten(self.job(key, note.value["payload"]))

    def lease(
        self, key: str, *, seconds: float = LEASE_SECONDS, sleep: Sleep = anyio.sleep, strict: bool = False
    ) -> Lease:
        """Return the lease of a job, not yet taken."""
        return Lease(self.store, self.notes.leases, key, seconds=seconds, sleep=sleep, strict=strict)

    def __str__(self) -> str:
        return f"{self.notes.owner} {self.owner!r}"


class JobKind(Protocol[R]):
    """A kind of durable job: where its records are, how one is done, and the result when it fails permanently.

    All else, `JobWorker` does for every kind. A method that raises `StoreError` has the job delivered again after a
    while.
    """

    @property
    def topic(self) -> JobTopic:
        """The topic under which its jobs are noted and queued."""
        ...

    @property
    def records(self) -> str:
        """The collection with the record of each job, by its key."""
        ...

    def details(self, key: str) -> Sequence[tuple[str, str]]:
        """Return the collections and keys of the documents to read together with the record of a job."""
        ...

    def load(self, record: Document, details: Sequence[Document | None] = ()) -> R:
        """Return a job by its documents; without `details` only to see whether it has ended.

        Raises:
            StoreError: The job is not of this topic, or another version wrote it: the delivery is dropped.
        """
        ...

    def has_begun(self, record: R) -> bool:
        """Whether a worker has started it, and neither ended it nor handed it back."""
        ...

    def has_ended(self, record: R) -> bool:
        """Whether nothing is left to be done."""
        ...

    async def perform(self, record: R, job: Job) -> None:
        """Do a job to its end, holding its lease, and `clean` up.

        No other worker does it now. This method has to know what may not be done twice: an earlier worker may have
        died in the middle.

        Raises:
            Later: It is not yet its turn.
        """
        ...

    def stop(self) -> None:
        """Hand over each running job as soon as nothing is lost by that: this worker stops, and accepts no more.

        A job that was handed over raises `HandOver`; those still running after the worker's grace are cancelled.
        """
        ...

    async def cancel(self, record: R) -> None:
        """Record that a job without a worker was cancelled."""
        ...

    async def give_up(self, record: R, deaths: int) -> None:
        """Record that a job has failed, as so many workers died of it."""
        ...

    async def sweep(self) -> None:
        """Do the periodic work for jobs that no worker has; called about once a minute, by one worker at a time."""
        ...

    async def clean(self, record: R) -> None:
        """Delete the notes of a job that has ended."""
        ...
