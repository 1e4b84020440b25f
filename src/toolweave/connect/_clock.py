"""Time and jitter of the supervision behind one interface, so that tests drive a backoff without waiting.

Knows nothing of connections. Bounds of calls and of teardown use the event loop's own clock instead, so that
a stopped test clock blocks nothing for ever.
"""

from __future__ import annotations

import random
import time
from typing import Protocol

import anyio


class Clock(Protocol):
    """The time, the sleep and the jitter of a connection's retries."""

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
"""The default clock of connections."""
