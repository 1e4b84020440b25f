"""A clock that stands until a test moves it. Asserts nothing."""

from __future__ import annotations

__all__ = ["Clock"]


class Clock:
    """A clock, as a function that returns the time in seconds.

    Attributes:
        now: The time; a test sets it.
    """

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
