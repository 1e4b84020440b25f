"""A clock that tests advance: backoffs and timeouts of supervised connections without waiting for them.

Knows nothing of connections; it is a `toolweave.connect._clock.Clock`.
"""

from __future__ import annotations

import bisect
import itertools

import anyio
import anyio.lowlevel

# Of the event loop: what a woken task may need until it sleeps again.
_TURNS = 50


class FakeClock:
    """A clock that stands still until `advance` is awaited.

        clock = FakeClock()
        await clock.until_sleeping()   # a task sleeps
        await clock.advance(0.5)       # half a second later

    Bounds that the event loop keeps, such as `anyio.fail_after` and the timeouts of calls, stay real.

    Args:
        start: The first value of `monotonic`, in seconds.
        jitter: The constant value of `jitter`, in [0, 1).
    """

    def __init__(self, *, start: float = 0.0, jitter: float = 0.0) -> None:
        if not 0 <= jitter < 1:
            raise ValueError(f"jitter must be in [0, 1), not {jitter!r}")
        self._now = start
        self._jitter = jitter
        self._numbers = itertools.count()
        self._sleepers: list[tuple[float, int, anyio.Event]] = []
        self._changed = anyio.Event()

    def monotonic(self) -> float:
        """Return the time in seconds."""
        return self._now

    def jitter(self) -> float:
        """Return the constant that was chosen."""
        return self._jitter

    @property
    def sleepers(self) -> tuple[float, ...]:
        """The remaining seconds of each sleeper, the next to wake first."""
        return tuple(deadline - self._now for deadline, _, _ in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Sleep until the clock was advanced by `seconds`; at once when that is zero or less."""
        if seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        # The number orders those that wake at the same time: the first to sleep wakes first.
        sleeper = (self._now + seconds, next(self._numbers), anyio.Event())
        bisect.insort(self._sleepers, sleeper, key=lambda one: one[:2])
        self._notify()
        try:
            await sleeper[2].wait()
        finally:
            if sleeper in self._sleepers:  # cancelled
                self._sleepers.remove(sleeper)
                self._notify()

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass: sleepers wake in the order of their time, each before the clock moves on.

        A sleeper that sleeps again within the time is woken again. Returns when the last one has run.

        Raises:
            ValueError: `seconds` is negative; time does not go back.
        """
        if seconds < 0:
            raise ValueError(f"a clock does not go back; seconds must not be negative: {seconds!r}")
        until = self._now + seconds
        # Tasks that are about to sleep do so first, and count from the earlier time.
        await _turns()
        while self._sleepers and self._sleepers[0][0] <= until:
            self._now, _, wake = self._sleepers.pop(0)
            wake.set()
            self._notify()
            await _turns()
        self._now = until

    async def until_sleeping(self, count: int = 1) -> None:
        """Wait until at least `count` tasks sleep on this clock; the caller bounds the wait."""
        while len(self._sleepers) < count:
            await self._changed.wait()

    def __repr__(self) -> str:
        return f"<FakeClock at {self._now:g} s, {len(self._sleepers)} sleeping>"

    def _notify(self) -> None:
        changed = self._changed
        self._changed = anyio.Event()
        changed.set()


async def _turns() -> None:
    for _ in range(_TURNS):
        await anyio.lowlevel.checkpoint()
