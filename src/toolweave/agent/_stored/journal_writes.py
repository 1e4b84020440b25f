"""The writes of one run's journal: changes that belong together reach the store in one write, or not at all.

Knows keys and values, not what they mean.

Why an entry is written once. Each change names the revision that it replaces, so of two processes that both execute a
run one is refused. A refusal alone does not show that there is a second process: an entry may have expired, when the
clock was changed, and a request to cancel the run changes its lease. The lease decides, which at most one process
holds: while it is ours, what has expired is written anew, and otherwise the run has been taken over.

Why an entry is not lost. Changes that were added wait for the next write, which contains them. When the store fails in
the middle of a write, the entry may be in it or not. The next try first looks: an equal entry is ours.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio

from toolweave.agent._stored.records import JOURNAL, RunRecord, ended_signal, record_changes
from toolweave.errors import RunError, StoreError
from toolweave.jobs import Lease
from toolweave.state import Change, Delete, Document, Put, Store
from toolweave.state.store import to_json

_log = logging.getLogger("toolweave.agent")

_CANCELLED_SECONDS = 5.0
"""Seconds in which a result is still written when its run is cancelled meanwhile."""
_RENEWED_TOGETHER = 200
"""Entries that are written again in one write."""
_FIRST_PAUSE = 0.05
_MAX_PAUSE = 1.0
"""Seconds until an entry that the store refused is written again; the wait doubles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The time for which entries are written again while the store fails.

    Attributes:
        seconds: Seconds for results, which only this process knows; other entries are written once.
        until_lease_is_lost: Whether every entry is written again until another process holds the lease.
    """

    seconds: float
    until_lease_is_lost: bool


class JournalWrites:
    """The changes to the journal of one run, and its entries.

    Args:
        store: The store.
        run_id: The run.
        lease: The lease of the run, which this process holds.
        ttl: Seconds that entries are kept.
        retry: How long entries are written again while the store fails.

    Attributes:
        entries: The entries that were read or written, by key.
    """

    def __init__(self, store: Store, run_id: str, lease: Lease, *, ttl: float, retry: RetryPolicy) -> None:
        self.entries: dict[str, Document] = {}
        self._store = store
        self._run_id = run_id
        self._lease = lease
        self._ttl = ttl
        self._retry = retry
        self._changes: list[Change] = []

    def add(self, key: str, value: Any) -> None:
        """Add an entry to the next write."""
        old = self.entries.get(key)
        revision = 0 if old is None else old.revision
        self._changes.append(Put(collection=JOURNAL, key=key, value=value, ttl=self._ttl, expect=revision))

    def remove(self, key: str) -> None:
        """Add the removal of an entry to the next write."""
        if self.entries.pop(key, None) is not None:
            self._changes.append(Delete(collection=JOURNAL, key=key))

    async def flush(self, *, is_result: bool = False) -> None:
        """Write the added changes.

        Args:
            is_result: Whether it has the result of a call, which no other process can find out. It is written also when
                the run is cancelled meanwhile, and again while the store fails.

        Raises:
            RunError: Another process has the run.
            StoreError: A value is not JSON, or the store has failed for too long.
        """
        changes = self._changes
        # Before the write, in which calls of the same turn may add more.
        self._changes = []
        if not changes:
            return
        revisions = await self._written(changes, is_result=is_result)
        if revisions is None:
            # Once more only: with our lease, a second refusal means that another process has written these entries.
            revisions = await self._store.write(await self._renewed(changes))
        if revisions is None:
            raise taken_over(self._run_id)
        for change, revision in zip(changes, revisions, strict=True):
            if isinstance(change, Put):
                self.entries[change.key] = Document(key=change.key, value=change.value, revision=revision)

    async def renew(self) -> None:
        """Write all entries again, so that they are kept as long as the record that is written next.

        Raises:
            RunError: Another process has the run.
            StoreError: The store has failed for too long.
        """
        entries = list(self.entries.values())
        for first in range(0, len(entries), _RENEWED_TOGETHER):
            for found in entries[first : first + _RENEWED_TOGETHER]:
                self.add(found.key, found.value)
            await self.flush()

    async def end(self, record: RunRecord, changes: Sequence[Change] = (), *, unless_cancelled: bool = False) -> bool:
        """Write the added changes with the record of the run at its end, and release its lease.

        Returns:
            False if `unless_cancelled` is set, and another process has requested to cancel the run: nothing is written.

        Raises:
            RunError: Another process has the run.
            StoreError: The store cannot be reached.
        """
        added = self._changes
        self._changes = []
        # In one write: a run that has ended never lacks an entry, and no lease stays behind for it.
        changes = [*record_changes(record), *added, *changes]
        signal = ended_signal(self._run_id)
        revisions = await self._lease.release_with(changes, signal=signal)
        if revisions is None:
            changes = await self._renewed(changes)
            # The request changes the lease, so it is one reason for the first refusal. The run must end as cancelled
            # then.
            if unless_cancelled and self._lease.cancel_requested:
                return False
            revisions = await self._lease.release_with(changes, signal=signal)
        if revisions is None:
            raise taken_over(self._run_id)
        return True

    async def _renewed(self, changes: Sequence[Change]) -> Sequence[Change]:
        """Replace the revisions of refused changes whose documents have expired.

        Raises:
            RunError: Another process has the run.
        """
        if not await self._lease.is_ours():
            raise taken_over(self._run_id)
        found = await self._store.read([(change.collection, change.key) for change in changes])
        renewed: list[Change] = []
        for change, document in zip(changes, found, strict=True):
            if document is None and change.expect is not None:
                renewed.append(replace(change, expect=0))
            else:
                renewed.append(change)
        return renewed

    async def _written(self, changes: Sequence[Change], *, is_result: bool) -> Sequence[int] | None:
        if not is_result:
            return await self._write_until_done(changes, seconds=0.0)
        try:
            return await self._write_until_done(changes, seconds=self._retry.seconds)
        except anyio.get_cancelled_exc_class():
            # The effect of the call has happened. Without its result in the journal, a resumed run would not know that.
            with anyio.move_on_after(_CANCELLED_SECONDS, shield=True):
                await self._write_until_done(changes, seconds=self._retry.seconds, is_repeated=True)
            raise

    async def _write_until_done(
        self, changes: Sequence[Change], *, seconds: float, is_repeated: bool = False
    ) -> Sequence[int] | None:
        """Write changes, again while the store fails; return None if they are refused.

        If the attempt ended at the first failure, the outcome of a call would be unknown, and calls beside it would be
        cancelled. Workers try until the lease is known to be another's. Elsewhere a caller waits, so there is a bound.

        Args:
            changes: The changes.
            seconds: Seconds to try where there is a bound.
            is_repeated: Whether they may have been written before.

        Raises:
            StoreError: A value is not JSON, or the store has failed for too long.
        """
        for change in changes:
            # Raises if the value is to blame, and not the store.
            _form(change)
        pause = _FIRST_PAUSE
        deadline = anyio.current_time() + seconds
        while True:
            try:
                if not is_repeated:
                    return await self._store.write(changes)
                return await self._repeat(changes)
            except StoreError as exc:
                is_last = anyio.current_time() + pause >= deadline
                if is_last and not self._retry.until_lease_is_lost:
                    raise
                if not is_repeated:
                    _log.warning("run %s: its journal cannot be written, trying again: %s", self._run_id, exc)
            # After any failure: the store may have made the write and lost the answer.
            is_repeated = True
            await anyio.sleep(pause)
            pause = min(_MAX_PAUSE, 2 * pause)

    async def _repeat(self, changes: Sequence[Change]) -> Sequence[int] | None:
        """Write changes unless an earlier try has; return their revisions, or None if they are refused."""
        if not await self._lease.is_ours():
            return None
        found = await self._store.read([(change.collection, change.key) for change in changes])
        if list(map(_form, found)) == list(map(_form, changes)):
            return [0 if document is None else document.revision for document in found]
        return await self._store.write(changes)


def _form(change: Change | Document | None) -> str | None:
    """Return the text of a value that is written or stored; None for a document that is deleted.

    Raises:
        StoreError: The value is not JSON.
    """
    if change is None or isinstance(change, Delete):
        return None
    return to_json(JOURNAL, change.key, change.value)


def taken_over(run_id: str) -> RunError:
    """Return the error of a run that another process continues."""
    return RunError("was taken over by another process; follow it there", run_id=run_id, reason="error")
