"""The time and the chance that supervision sees, behind one seam: tests drive a backoff without waiting for it.

Knows nothing of connections. Bounds of calls and of teardown are not its business: they stay with the
event loop's own clock, so that a clock that stands still can hold nobody for ever.
"""

from __future__ import annotations

import random
import time
from typing import Protocol

import anyio

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock"]


class Clock(Protocol):
    """Tells an owner the time, waits for it and spreads its retries."""

    def monotonic(self) -> float:
        """Return seconds since any fixed point; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return `seconds` later; cancelling ends the wait."""
        ...

    def jitter(self) -> float:
        """Return a number in [0, 1) that differs between processes."""
        ...


class SystemClock:
    """The real time, and a random number."""

    def monotonic(self) -> float:
        """Return the seconds of `time.monotonic`."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the event loop."""
        await anyio.sleep(seconds)

    def jitter(self) -> float:
        """Return a random number in [0, 1)."""
        return random.random()  # noqa: S311 - spreads retries, guards nothing


SYSTEM_CLOCK: Clock = SystemClock()
"""The clock of every connection that is given no other."""
