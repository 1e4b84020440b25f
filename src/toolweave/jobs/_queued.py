"""The jobs that wait for a worker, counted by the notes in the store.

Reads notes and leases, but no records: there may be many jobs, and this is done every few seconds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import unquote

from toolweave._json_types import as_number, object_or_empty
from toolweave.jobs._kind import JobCollections
from toolweave.jobs._lease import is_living
from toolweave.state import Store, iter_documents


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJobs:
    """The submitted jobs of one agent or server that wait for a worker.

    Attributes:
        count: Their number.
        oldest_at: When the oldest was submitted, in seconds since the epoch, by the clock of its submitter.
    """

    count: int
    oldest_at: float


async def queued_jobs(
    store: Store, notes: JobCollections, *, excluded: Collection[str] = frozenset()
) -> dict[str, QueuedJobs]:
    """Return the jobs of a kind that wait for a worker, by agent or server; none that has no such job.

    A job whose worker died or was stopped waits again, and counts from its submission.

    Args:
        store: The store with the notes.
        notes: Their collections.
        excluded: Keys of jobs that no worker could start yet.

    Raises:
        StoreError: The store cannot be read.
    """
    submitted: list[tuple[str, str, float]] = []
    async for note in iter_documents(store, notes.submitted):
        # The first slash: the owner before it is quoted and has none.
        owner, _, key = note.key.partition("/")
        submitted.append((unquote(owner), key, float(as_number(object_or_empty(note.value).get("at")) or 0)))
    # The leases are read last: a job that was started in between has one by now.
    taken = {lease.key async for lease in iter_documents(store, notes.leases) if is_living(lease)}
    found: dict[str, QueuedJobs] = {}
    for owner, key, at in submitted:
        if key in taken or key in excluded:
            continue
        known = found.get(owner, QueuedJobs(count=0, oldest_at=at))
        found[owner] = QueuedJobs(count=known.count + 1, oldest_at=min(known.oldest_at, at))
    return found
