"""Limits that several processes count together, in a store that they share.

Why calls do not wait for a store that is away: the first call that gets no answer notes it, and from then on this
process counts alone. It asks again when a `StoreWatch` has reached the store since, which costs no call anything.
Without a watch one call at a time tries, within a short timeout, and the others do not wait for it.
"""

from __future__ import annotations

import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

import anyio

from toolweave._option_checks import check_kind
from toolweave.errors import StoreError
from toolweave.middleware._limit_store import MemoryLimits
from toolweave.state import Document, Store
from toolweave.state.checks import STORE
from toolweave.state.store import BoundedStore

_log = logging.getLogger("toolweave.middleware")

COLLECTION = "gateway-limits"
_MAX_KEYS = 10_000
_ASK_SECONDS = 1.0
"""Seconds that a call waits for the store before this process counts alone."""
_FIRST_PAUSE = 1.0
_LAST_PAUSE = 8.0
"""Seconds until a store without a watch is asked again; the wait doubles."""
_MIN_TTL = 60.0
_MAX_TRIES = 20

Counted: TypeAlias = "tuple[list[float], float]"
"""The value of a key from now on, and the seconds that its caller has to wait."""


class _StoredCount(NamedTuple):
    """A document as this process wrote it last."""

    value: list[float]
    revision: int


class StoreWatch(Protocol):
    """Reaches for a store in the background."""

    @property
    def away(self) -> str | None:
        """The reason that the store cannot be used now, or None."""
        ...

    def has_answered_since(self, moment: float) -> bool:
        """Whether the store has answered a request that was sent after this time of the event loop."""
        ...


class StoreLimits:
    """A `LimitStore` in a store that all processes share.

    A count is written only if no other process has written it meanwhile, else it is read and counted again. While the
    store is away, this process counts for itself.

    Args:
        store: The store.
        name: Separates the counts of different limits in one store.
        clock: Returns the time in seconds since the epoch, the same for all processes.
        watch: Finds out when the store is back, such as `Replicas`; without one a call does, now and then.
    """

    def __init__(
        self,
        store: Store,
        *,
        name: str = "",
        clock: Callable[[], float] = time.time,
        watch: StoreWatch | None = None,
    ) -> None:
        check_kind("StoreLimits.store", store, STORE)
        if isinstance(store, BoundedStore):
            self._store = store.within(_ASK_SECONDS)
        else:
            self._store = store
        self._watch = watch
        self._name = name
        self._clock = clock
        self._local = MemoryLimits(clock=clock)
        # When the store was last found to be away, if it has not answered since.
        self._failed_at: float | None = None
        self._retry_at = 0.0
        self._pause = _FIRST_PAUSE
        self._known: OrderedDict[str, _StoredCount] = OrderedDict()
        self._locks: dict[str, anyio.Lock] = {}

    async def take(self, key: str, *, rate: float, burst: float) -> float:
        """Take one token; see `LimitStore`."""

        def count(before: list[float] | None, now: float) -> Counted:
            tokens, since = (burst, now) if before is None else (before[0], before[1])
            # Clocks of processes differ: a writer that is ahead must not make the others take tokens away.
            tokens = min(burst, tokens + max(0.0, now - since) * rate)
            wait = 0.0 if tokens >= 1 else (1 - tokens) / rate
            # Never back in time: the seconds between a slow and a fast clock would be credited again by the next
            # process.
            return [tokens if wait else tokens - 1, max(since, now)], wait

        found = await self._try_count(f"rate:{key}", count, ttl=burst / rate + _MIN_TTL)
        if found is None:
            return await self._local.take(key, rate=rate, burst=burst)
        return found

    async def spend(self, key: str, *, limit: int, period: float) -> float:
        """Count one use; see `LimitStore`."""

        def count(before: list[float] | None, now: float) -> Counted:
            current = float(now // period)
            if before is not None and before[0] == current:
                uses = before[1]
            else:
                uses = 0.0
            full = uses >= limit
            return [current, uses if full else uses + 1], (current + 1) * period - now if full else 0.0

        found = await self._try_count(f"budget:{key}", count, ttl=period + _MIN_TTL)
        if found is None:
            return await self._local.spend(key, limit=limit, period=period)
        return found

    async def _try_count(
        self, key: str, count: Callable[[list[float] | None, float], Counted], *, ttl: float
    ) -> float | None:
        """Count one use in the store and return the seconds to wait; None if the store cannot be used now."""
        if self._is_away():
            return None
        asked_at = anyio.current_time()
        name = f"{self._name}:{key}"
        turn = self._locks.setdefault(name, anyio.Lock())
        try:
            # One call of this process at a time: calls that race write the same revision, and all but one try again.
            async with turn:
                lost_at = self._failed_at
                if lost_at is not None and lost_at >= asked_at:
                    # The store failed for the call before, after this one began to wait: do not wait for it again.
                    return None
                return await self._count_in_store(name, count, ttl)
        except StoreError as exc:
            self._record_failure(exc, asked_at)
            return None
        finally:
            # Keys are made of callers and offers, so unused locks would accumulate. A lock with waiters is in use.
            if not turn.locked() and not turn.statistics().tasks_waiting:
                self._locks.pop(name, None)

    def _is_away(self) -> bool:
        """Return whether to count in this process alone; if false after a failure, this call is the retry."""
        # The watch is free to ask. A call would have to wait for its timeout.
        if self._watch is not None and self._watch.away is not None:
            return True
        if self._failed_at is None:
            return False
        if self._watch is not None:
            return not self._watch.has_answered_since(self._failed_at)
        now = anyio.current_time()
        if now < self._retry_at:
            return True
        # Moved before the try is made, so that calls which arrive meanwhile do not try.
        self._retry_at = now + self._pause
        return False

    def _record_failure(self, error: StoreError, asked_at: float) -> None:
        """Record that the store did not respond to a call that was sent at this time."""
        if self._failed_at is None:
            _log.warning("%s; until it is back, every process counts its limits alone", error)
        elif asked_at >= self._failed_at:
            # It was a retry, and not one of several calls that were sent before the first failure.
            self._pause = min(_LAST_PAUSE, 2 * self._pause)
        self._failed_at = anyio.current_time()
        self._retry_at = self._failed_at + self._pause

    def _record_response(self) -> None:
        """Record that the store responds."""
        self._failed_at = None
        self._pause = _FIRST_PAUSE

    async def _count_in_store(
        self, name: str, count: Callable[[list[float] | None, float], Counted], ttl: float
    ) -> float | None:
        # From memory first: if no other process has counted meanwhile, a count is one write and no read.
        known = self._known.get(name)
        for _ in range(_MAX_TRIES):
            # Computed anew in each try, from the current value and time.
            value, wait = count(None if known is None else known.value, self._clock())
            if wait > 0:
                # Nothing is counted, so nothing is written. Since the value in memory, other
                # processes can only have used more.
                return wait
            expect = 0 if known is None else known.revision
            revision = await self._store.put(COLLECTION, name, value, ttl=ttl, expect=expect)
            if revision is not None:
                self._remember(name, _StoredCount(value, revision))
                self._record_response()
                return wait
            known = await self._read(name)
        _log.warning("a limit could not be counted: too many processes count it at once")
        return None

    async def _read(self, name: str) -> _StoredCount | None:
        found = await self._store.get(COLLECTION, name)
        value: Any = None if found is None else found.value
        if found is None:
            return None
        return _StoredCount([float(one) for one in value], found.revision)

    def _remember(self, name: str, known: _StoredCount) -> None:
        # Only values that this process has written itself: they carry the revision to replace next.
        self._known[name] = known
        self._known.move_to_end(name)
        if len(self._known) > _MAX_KEYS:
            self._known.popitem(last=False)


def limit_principal(found: Document) -> str:
    """Return the principal that a count in a store is for, or "" if it is for more than one."""
    # the limiter's name, then the JSON of the kind, of what is counted by, and of its parts
    _, _, text = found.key.partition(":[")
    try:
        _, by, parts = json.loads(f"[{text}")
        return parts[by.index("principal")].rpartition("|")[0]
    except (ValueError, TypeError, AttributeError, IndexError):
        return ""
