"""The wait before something that failed is tried again: exponential, bounded, and spread at random."""

from __future__ import annotations

_MAX_STEPS = 60
"""Further growth would soon be no number any more."""


def backoff(
    failures: int,
    *,
    first: float,
    longest: float,
    factor: float = 2.0,
    spread: tuple[float, float] = (1.0, 1.0),
    chance: float = 0.0,
) -> float:
    """Return the seconds to wait after `failures` failures in a row.

    Args:
        failures: How many there were; below 1 counts as 1.
        first: Seconds after the first failure.
        longest: Maximum in seconds, before it is spread.
        factor: Each further wait is this many times longer.
        spread: The wait is multiplied by a number between these two, so that many clients do not return at once.
        chance: Where between the two, from 0 to 1: a random number.
    """
    wait = min(first * factor ** min(max(failures - 1, 0), _MAX_STEPS), longest)
    low, high = spread
    return wait * (low + (high - low) * chance)
