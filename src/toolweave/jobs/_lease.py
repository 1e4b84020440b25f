"""Leases: at most one process does a piece of work; a lease is a document in the store, renewed while the work runs.

Independent of the work.

Why two processes never hold one: every write names the revision that it replaces, so of two that take an abandoned
lease one fails. A lease expires in the store unless it is renewed, which happens three times in its lifetime. A holder
counts the lifetime from before the write was sent, and `sure` ends at a fraction of it, so that the holder knows that
it may have lost the lease before another process can take it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import anyio

from toolweave._json_types import Json, JsonObject
from toolweave._option_checks import check_number, type_error
from toolweave.errors import StoreError
from toolweave.jobs._backoff import Sleep
from toolweave.state import Change, Delete, Document, Put, Store, listening, signal
from toolweave.state.checks import STORE

LEASE_SECONDS = 15.0
"""Lifetime of a lease without renewal, in seconds; the lease of a dead process of this machine ends at once."""
_SHORT_SECONDS = 0.1
"""Seconds after the begin of work until requests to cancel it are listened for."""
_here: set[str] = set()
"""The lease holders of this process that have neither released their lease nor tried to."""
SURE = 0.8
"""The fraction of its lifetime in which a lease is safe to rely on; the rest is for work that has to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseAttempt:
    """The result of an attempt to acquire a lease.

    Attributes:
        acquired: Whether the lease was acquired. If not and there is no holder, one of the changes was refused.
        holder: The `process` and `machine` of the living process that holds it, or None.
        revisions: The revisions of the changes that were made with it.
    """

    acquired: bool = False
    holder: JsonObject | None = None
    revisions: Sequence[int] = ()


class Lease:
    """The right to do one piece of work.

    Args:
        collection: Where the leases of this kind of work are kept.
        key: The work.
        seconds: Lifetime without renewal.
        sleep: Waits between renewals.
        strict: Whether it also counts as lost when it could not be renewed and may soon be another's; otherwise the
            work continues, and the holder is checked when the store is back.

    Attributes:
        lost: Whether it may be another's by now.
    """

    def __init__(
        self,
        store: Store,
        collection: str,
        key: str,
        *,
        seconds: float = LEASE_SECONDS,
        sleep: Sleep = anyio.sleep,
        strict: bool = False,
    ) -> None:
        if not STORE.fits(store):  # in place: a lease is made for each run
            raise type_error("Lease.store", store, STORE.shown)
        check_number("Lease.seconds", seconds, noun="a number of seconds")
        self._store = store
        self._collection = collection
        self._key = key
        self._seconds = seconds
        self._sleep = sleep
        self._strict = strict
        self._value: Json = {"holder": os.urandom(16).hex(), "process": os.getpid(), "machine": machine()}
        self._revision = 0
        self._since = 0.0  # when it was last renewed, or before
        self.lost: bool = False
        self._released = False
        self._renewing = anyio.Lock()

    @property
    def holder(self) -> str:
        """The unique name of this holder, different from that of every earlier one."""
        return self._value["holder"]

    @property
    def sure(self) -> bool:
        """Whether no other process can hold it now, even if the store is unreachable."""
        return anyio.current_time() < self._since + self._seconds * SURE

    @property
    def cancel_requested(self) -> bool:
        """Whether another process had requested to cancel the work when the lease was last read."""
        return self._value.get("cancel") is True

    async def acquire(self, changes: Sequence[Change] = ()) -> LeaseAttempt:
        """Acquire the lease unless a living process holds it, and make these changes in the same write.

        Raises:
            StoreError: The store cannot be reached.
        """
        self._released = False
        acquired = False
        try:
            attempt = await self._acquire(changes)
            acquired = attempt.acquired
            return attempt
        finally:
            if not acquired:
                # Also after an error or a cancellation: the write may have been made, and a lease that its process
                # does not use must not block others until it expires.
                _here.discard(self.holder)

    async def _acquire(self, changes: Sequence[Change]) -> LeaseAttempt:
        # Optimistic: nearly every lease is free, and then it is a single write. `expect=0` means that there is no
        # document.
        expect = 0
        while True:
            revisions = await self._write(expect, changes)
            if revisions is not None:
                return LeaseAttempt(acquired=True, revisions=revisions)
            found = await self._store.get(self._collection, self._key)
            if found is not None and not _is_abandoned(found.value):
                return LeaseAttempt(holder=found.value)
            revision = 0 if found is None else found.revision
            # the lease was free, so one of the changes was refused
            if changes and revision == expect:
                return LeaseAttempt()
            expect = revision

    async def release_with(self, changes: Sequence[Change], *, signal: str) -> Sequence[int] | None:
        """Release it with changes in the same write; return their revisions, or None when an `expect` did not hold.

        When another process holds it, or wrote to it, nothing is done.

        Args:
            changes: The changes.
            signal: The name of the signal to send with them.

        Raises:
            StoreError: The store cannot be reached.
        """
        self._released = True  # the task that renews it would acquire it again
        revisions: Sequence[int] | None = None
        try:
            ours = Delete(collection=self._collection, key=self._key, expect=self._revision)
            revisions = await self._store.write([*changes, ours], signal=signal)
        finally:
            # An `expect` of the caller did not hold, or the store failed: nothing was written, so the lease is still
            # ours and is renewed again.
            self._released = revisions is not None
        if revisions is None:
            return None
        return revisions[:-1]

    @asynccontextmanager
    async def kept(self, cancel: Callable[[], None]) -> AsyncGenerator[None, None]:
        """Renew a taken lease during the block, then release it; the block is cancelled when the lease is lost.

        `cancel` is called when another process requests that.
        """
        failure: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                # short work needs no renewal of its lease
                later = min(_SHORT_SECONDS, self._seconds / 10)
                # A timer and not a task that sleeps first: most jobs end within 0.1 s and never pay for the listener,
                # its read and the task.
                keeping = asyncio.get_running_loop().call_later(
                    later, tasks.start_soon, self.keep, tasks.cancel_scope.cancel, cancel, context=_timer_context()
                )
                try:
                    yield
                except Exception as exc:  # boundary: raised below, a task group would wrap it
                    failure = exc
                finally:
                    keeping.cancel()
                tasks.cancel_scope.cancel()
        finally:
            _here.discard(self.holder)
            if not (self.lost or self._released):
                with anyio.CancelScope(shield=True):
                    await self.release()
        if failure is not None:
            raise failure

    async def keep(self, lost: Callable[[], None], cancel: Callable[[], None]) -> None:
        """Renew it for ever; call `lost` and return when another process holds it, `cancel` when one requests that."""
        async with listening(self._store, _name_of(self._collection, self._key)) as listener:
            # A request to cancel that was written between acquiring the lease and listening was not received.
            changed = await self._is_changed()
            while not self.lost:
                if not changed:
                    # A third of the lifetime: if one renewal fails, there is another before `sure` ends.
                    await listener.wait(self._seconds / 3, self._sleep)
                changed = False
                if self._released:
                    continue
                ours = await self._renewed(lost)
                if not (ours or self.lost):
                    self._lose(lost)
                elif self._value.get("cancel"):
                    cancel()

    async def _is_changed(self) -> bool:
        """Whether another process wrote to it before this listened."""
        try:
            found = await self._store.get(self._collection, self._key)
        except StoreError:  # which is seen at the renewal
            return False
        return found is None or found.revision != self._revision

    async def _renewed(self, lost: Callable[[], None]) -> bool:
        """Renew it; return False when another process holds it, or may soon."""
        ours = False
        async with anyio.create_task_group() as tasks:
            if self._strict:
                tasks.start_soon(self._run_out, lost)
            try:
                ours = await self.is_ours()
            except StoreError:  # busy for a while: whether it still holds is seen the next time
                soon = anyio.current_time() + self._seconds / 3
                # Strict: is there time for one more try before `sure` ends? If not, the work has to stop now, while the
                # lease is provably still ours.
                ours = not self._strict or soon < self._since + self._seconds * SURE
            tasks.cancel_scope.cancel()
        return ours

    async def _run_out(self, lost: Callable[[], None]) -> None:
        """Lose it while the store does not answer: a pending write may take longer than its lifetime."""
        left = self._since + self._seconds * SURE - anyio.current_time()
        # a process that slept has a moment to see whose it is
        await anyio.sleep(max(left, self._seconds / 6))
        self._lose(lost)

    def _lose(self, lost: Callable[[], None]) -> None:
        self.lost = True
        lost()

    async def release(self) -> None:
        """Release it, if it is still held; one that cannot be released, as on a full disk, is free for this process."""
        _here.discard(self.holder)
        if self._released:
            return
        self._released = True  # who renews it meanwhile would take it again
        try:
            await self._store.delete(self._collection, self._key, expect=self._revision)
        except StoreError:
            pass

    async def _write(self, expect: int, changes: Sequence[Change] = ()) -> Sequence[int] | None:
        """Write the lease over this revision, together with changes; return their revisions, or None if refused."""
        # The time is taken before the write: how long the store took to answer is unknown, so the lease may have begun
        # to run out from `begun` on.
        begun = anyio.current_time()
        _here.add(self.holder)
        ours = Put(collection=self._collection, key=self._key, value=self._value, ttl=self._seconds, expect=expect)
        revisions = await self._store.write([ours, *changes])
        if revisions is None:
            return None
        self._revision = revisions[0]
        self._since = begun
        return revisions[1:]

    async def _renew(self, expect: int) -> bool:
        return await self._write(expect) is not None

    async def is_ours(self) -> bool:
        """Whether the store says that no other process holds it; one that expired without a new holder is renewed.

        Raises:
            StoreError: The store cannot be reached.
        """
        # One at a time: the work itself asks as well, and of two renewals with one revision one would fail.
        async with self._renewing:
            return await self._is_ours()

    async def _is_ours(self) -> bool:
        # The revision is a fencing token: it can only match if nobody wrote since our last renewal. A mismatch is a
        # request to cancel, an expiry, or another holder: the document shows which.
        if self.lost or await self._renew(self._revision):
            return not self.lost
        found = await self._store.get(self._collection, self._key)
        if found is None:  # it expired, on a machine that slept, and was not taken
            return await self._renew(0)
        if found.value["holder"] != self._value["holder"]:
            return False
        # It holds `cancel` now; renewing with our older value would erase the request.
        self._value = found.value
        self._revision = found.revision
        return await self._renew(self._revision)


def _timer_context() -> Context:
    """Return a context in which a timer may start tasks.

    Where sniffio is installed, it finds asyncio in tasks only, unless the context names it: `anyio.run` does that,
    `asyncio.run` does not.
    """
    context = copy_context()
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, "asyncio")
    return context


async def is_held(store: Store, collection: str, key: str) -> bool:
    """Whether a living process holds a lease now."""
    return is_living(await store.get(collection, key))


def is_living(found: Document | None) -> bool:
    """Whether the document of a lease is that of a living process."""
    return found is not None and not _is_abandoned(found.value)


async def ask_to_cancel(store: Store, collection: str, key: str, *, seconds: float = LEASE_SECONDS) -> bool:
    """Ask the holder of a lease to cancel its work; return False if no process holds it.

    It is notified at once where the store passes on signals, else at the next renewal.
    """
    while True:
        found = await store.get(collection, key)
        if found is None or _is_abandoned(found.value):
            return False
        value = {**found.value, "cancel": True}
        if await store.put(collection, key, value, ttl=seconds, expect=found.revision) is not None:
            await signal(store, _name_of(collection, key))
            return True


def _name_of(collection: str, key: str) -> str:
    """Return the name of the signal that another process wrote to a lease."""
    return f"{collection}/{key}"


@cache
def machine() -> str:
    """Return an id of this machine, shared by everything that shares its process ids."""
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip())
        # Two containers of one host share hostname and boot id at times, and never this.
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        pass  # not on Linux, where the name has to do
    return " ".join(parts)


def _is_abandoned(value: JsonObject) -> bool:
    """Whether a lease is that of a dead process of this machine, or one that this process holds no longer."""
    # A process id means something only on its own machine, boot and pid namespace. Of others the lifetime alone
    # decides.
    if os.name != "posix" or value["machine"] != machine():
        return False
    if value["process"] == os.getpid():
        return value["holder"] not in _here
    return process_is_dead(value["process"])


def process_is_dead(process: int) -> bool:
    """Whether this machine has no process of this id; one that ended and was not waited for counts as living."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return False
