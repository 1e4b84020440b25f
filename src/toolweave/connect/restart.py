"""When a lost connection is tried again: a pure function of what happened, no clock and no I/O of its own."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RestartPolicy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """Exponential backoff with jitter, a cap and an end (requirement C24).

    Attributes:
        first: Seconds before the first attempt.
        factor: Each further wait is this many times longer.
        cap: The longest wait, in seconds.
        attempts: After so many failures in a row the connection is given up.
        stable: A connection that held so many seconds starts the count anew.
    """

    first: float = 0.1
    factor: float = 3.0
    cap: float = 30.0
    attempts: int = 6
    stable: float = 10.0

    def delay(self, failures: int, jitter: float) -> float | None:
        """Return the seconds to wait after `failures` failures in a row, or None to give up.

        `jitter` in [0, 1) spreads the wait over its upper half, so that many clients do not return at once.
        """
        if failures > self.attempts:
            return None
        wait = min(self.cap, self.first * self.factor ** max(0, failures - 1))
        return wait * (0.5 + 0.5 * jitter)

    def failures_after(self, failures: int, held_seconds: float) -> int:
        """Return the failures in a row after a connection that was ready was lost again."""
        return 1 if held_seconds >= self.stable else failures + 1
