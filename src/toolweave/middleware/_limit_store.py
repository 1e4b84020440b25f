"""Stores that count the use of limits: the port, and the one of this process.

A store of many processes does both steps of an operation at once, as a script of Redis does.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, runtime_checkable

_MAX_KEYS = 100_000


@runtime_checkable
class LimitStore(Protocol):
    """Counts uses by key."""

    async def take(self, key: str, *, rate: float, burst: float) -> float:
        """Take one token from a bucket.

        Args:
            key: The bucket; a new one is full.
            rate: Tokens that are added each second.
            burst: The maximum number of uses that it holds.

        Returns:
            0 when a token was taken, else the seconds until there is one.
        """
        ...

    async def spend(self, key: str, *, limit: int, period: float) -> float:
        """Count one use within a period; periods begin at multiples of their length since the epoch.

        Args:
            key: The counter.
            limit: The maximum number of uses in a period.
            period: The length of a period in seconds.

        Returns:
            0 when the use was counted, else the seconds until the next period.
        """
        ...


class MemoryLimits:
    """A store of this process. The keys that were used least recently are forgotten beyond a bound.

    Args:
        clock: Returns the time in seconds since the epoch.
        max_keys: The maximum number of buckets, and of counters, that are kept.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time, max_keys: int = _MAX_KEYS) -> None:
        self._clock = clock
        self._max_keys = max_keys
        # Tokens, and when there were so many.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        # the period, and its uses
        self._counters: OrderedDict[str, tuple[int, int]] = OrderedDict()

    async def take(self, key: str, *, rate: float, burst: float) -> float:
        """Take one token; see `LimitStore`."""
        now = self._clock()
        tokens, since = self._buckets.pop(key, (burst, now))
        # The wall clock may be set back: no tokens are taken away for that.
        tokens = min(burst, tokens + max(0.0, now - since) * rate)
        wait = 0.0 if tokens >= 1 else (1 - tokens) / rate
        # Popped above and inserted again, which makes it the most recently used: the first one is the one to forget.
        self._buckets[key] = (tokens if wait else tokens - 1, now)
        if len(self._buckets) > self._max_keys:
            self._buckets.popitem(last=False)
        return wait

    async def spend(self, key: str, *, limit: int, period: float) -> float:
        """Count one use; see `LimitStore`."""
        now = self._clock()
        current = int(now // period)
        counted, uses = self._counters.pop(key, (current, 0))
        # Uses of an earlier period do not count. The counter is reset at its next use, so nothing has to run at the end
        # of a period.
        if counted != current:
            uses = 0
        full = uses >= limit
        self._counters[key] = (current, uses if full else uses + 1)
        if len(self._counters) > self._max_keys:
            self._counters.popitem(last=False)
        if full:
            return (current + 1) * period - now
        return 0.0
