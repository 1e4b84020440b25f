"""The order of one session's runs: the lease that each run holds, and the queue of those that were submitted.

Both are in the store, so that runs of one session wait for each other across processes; they know no worker.

Why the order holds: the key of an entry begins with the time of submission, and a run waits while an entry before its
own has not ended. Why two runs never write one conversation: each run holds the lease of the session, also those that
no worker executes. A run within another one of its session does not wait for it, which would be for ever.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace

import anyio

from toolweave.agent._sessions import continue_conversation
from toolweave.agent._stored.durable import Durable
from toolweave.agent._stored.records import LEASES, RunRecord, conversation_key, read_record, read_start, write_start
from toolweave.errors import RunError, StoreError
from toolweave.jobs import Lease
from toolweave.jobs._backoff import until
from toolweave.jobs._lease import is_held
from toolweave.state import Delete, Put, Store, iter_documents
from toolweave.state.deletions import deletions

_COLLECTION = "run-lines"
"""Runs that were submitted to a session, below the session's key, in the order of submission."""


_LOOK_SECONDS = 1.0
"""Seconds until a session is tried again without a signal: the process that held it may be dead."""
_held: ContextVar[frozenset[str]] = ContextVar("toolweave-held-sessions", default=frozenset())
"""The sessions that are held by the runs around this context."""


class SessionQueue:
    """The queue of one run's session, as that run sees it; without a session the run may always start."""

    def __init__(self, durable: Durable, record: RunRecord) -> None:
        self._durable = durable
        self._store = durable.store
        self._record = record
        if record.session is None:
            self._session = ""
        else:
            self._session = _session(record.agent, record.session)
        self._key = _position(self._session, record.run_id, record.created_at)

    async def join(self) -> None:
        """Take the position that the run had when it was submitted; idempotent."""
        if self._record.session is not None:
            await self._store.put(_COLLECTION, self._key, self._record.run_id, ttl=self._durable.keep_seconds)

    async def leave(self) -> None:
        """Leave the queue, and have the next run of the session start."""
        if self._record.session is not None:
            await self._store.delete(_COLLECTION, self._key)
            await _wake_next(self._durable, self._session)

    async def ahead(self) -> int:
        """Return the number of runs ahead in the queue; runs that have ended are removed from it."""
        waiting = 0
        if self._record.session is None:
            return waiting
        async for found in iter_documents(self._store, _COLLECTION, f"{self._session}/"):
            if found.key >= self._key:
                break
            try:
                other = await read_record(self._store, found.value)
            except StoreError:
                # Another version wrote it; then its lease holds the session.
                continue
            # Removed by the next run that looks, as the process of an ended run may have died before it could.
            if other is None or other.done:
                await self._store.delete(_COLLECTION, found.key)
            else:
                waiting += 1
        return waiting

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[bool, None]:
        """Hold the session's lease, if it is free; a run that has not started continues the conversation as of now.

        Yields whether it is held. When another process takes it, the body is cancelled.
        """
        if self._record.session is None:
            yield True
            return
        lease = _lease(self._durable, self._session)
        attempt = await lease.acquire()
        if not attempt.acquired:
            yield False
            return
        async with _kept(lease, self._session):
            await self._go_on_from_now()
            yield True

    async def _go_on_from_now(self) -> None:
        record = await read_record(self._store, self._record.run_id)
        if record is None or record.session is None or record.status != "pending" or record.attempts:
            return
        start = await read_start(self._store, record)
        sent = start.new_messages
        history = await self._durable.conversations.load(record.session)
        messages = continue_conversation(history, sent)
        now = replace(start, messages=tuple(messages), sent=len(messages) - len(history))
        await write_start(self._store, now, ttl=self._durable.keep_seconds)


@asynccontextmanager
async def hold_session(durable: Durable | None, session: str | None, run_id: str) -> AsyncGenerator[None, None]:
    """Hold the lease of a session for a run of this process; wait while another run has it.

    Does nothing without a store or a session, and within a run that holds it.

    Raises:
        RunError: Another process took the session, because this one was silent for too long.
        StoreError: The store cannot be reached.
    """
    if durable is None or session is None:
        key = ""
    else:
        key = _session(durable.agent, session)
    if durable is None or not key or key in _held.get():
        yield
        return
    lease = _lease(durable, key)

    async def take() -> bool | None:
        attempt = await lease.acquire()
        if attempt.acquired:
            return True
        return None

    if not await take():
        await until(durable.store, _freed_signal(key), take, sleep=durable.sleep, last=_LOOK_SECONDS)
    completed = False
    async with _kept(lease, key):
        yield
        completed = True
    with suppress(StoreError):  # it is polled, too
        await _wake_next(durable, key)
    if not completed:
        # Cancelled by the loss of the lease.
        raise RunError("lost its session to another process; resume it", run_id=run_id, reason="error")


async def runs_behind_others(store: Store) -> set[str]:
    """Return the ids of submitted runs that are not the first of their session.

    Raises:
        StoreError: The store cannot be read.
    """
    behind: set[str] = set()
    last = ""
    async for found in iter_documents(store, _COLLECTION):
        session = found.key.partition("/")[0]
        if session == last:
            behind.add(found.value)
        last = session
    return behind


async def _wake_next(durable: Durable, session: str) -> None:
    """Have the first run in the queue of a session delivered to a worker now.

    Those behind a run that waits for a person wait with it. A run that is executed needs no wake-up.
    """
    if durable.jobs is None:
        return
    async for found in iter_documents(durable.store, _COLLECTION, f"{session}/"):
        try:
            record = await read_record(durable.store, found.value)
        except StoreError:
            # Another version wrote it, and will do it.
            return
        if record is None or record.done:
            await durable.store.delete(_COLLECTION, found.key)
            continue
        if record.status == "pending":
            await durable.jobs.hasten(record.run_id)
        return


def _lease(durable: Durable, key: str) -> Lease:
    """Return the lease of a session, not yet taken."""
    seconds = durable.lease_seconds
    sleep = durable.sleep
    return Lease(durable.store, LEASES, f"session:{key}", seconds=seconds, sleep=sleep)


@asynccontextmanager
async def _kept(lease: Lease, key: str) -> AsyncGenerator[None, None]:
    """Renew the taken lease of a session during the block, then give it back and wake those that wait for it."""
    token = _held.set(_held.get() | {key})
    try:
        async with lease.kept(_nothing):
            try:
                yield
            finally:
                if not lease.lost:
                    with anyio.CancelScope(shield=True), suppress(StoreError):
                        await lease.release_with([], signal=_freed_signal(key))
    finally:
        _held.reset(token)


def _freed_signal(key: str) -> str:
    """Return the name of the signal that the lease of a session was given back."""
    return f"session/{key}"


def queued(agent: str, session: str | None, run_id: str, at: float, *, ttl: float) -> Sequence[Put]:
    """Return the store change that adds a new run to the queue of its session, if it has one."""
    if session is None:
        return []
    key = _position(_session(agent, session), run_id, at)
    return [Put(collection=_COLLECTION, key=key, value=run_id, ttl=ttl)]


def position_of(record: RunRecord) -> Sequence[Delete]:
    """Return the store change that removes a run from the queue of its session, if it has one."""
    if record.session is None:
        return []
    key = _position(_session(record.agent, record.session), record.run_id, record.created_at)
    return [Delete(collection=_COLLECTION, key=key)]


async def positions_in(store: Store, agent: str, session: str) -> list[Delete]:
    """Return the store changes that remove all runs from the queue of a session."""
    return await deletions(store, _COLLECTION, f"{_session(agent, session)}/")


async def is_session_held(store: Store, agent: str, session: str) -> bool:
    """Whether a run of a living process continues a session now."""
    return await is_held(store, LEASES, f"session:{_session(agent, session)}")


def _session(agent: str, session: str) -> str:
    # a session's name may hold anything, slashes too
    return hashlib.sha256(conversation_key(agent, session).encode()).hexdigest()[:32]


def _position(session: str, run_id: str, at: float) -> str:
    return f"{session}/{round(at * 1e6):016}/{run_id}"


def _nothing() -> None:
    """Ignore a cancellation request: it goes through the run's lease, not the session's."""
