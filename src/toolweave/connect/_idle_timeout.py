"""The idle timeout of connecting, on the deadline of a cancel scope. Knows no wire."""

from __future__ import annotations

import math

import anyio

_STEP_SECONDS = 0.001  # a scope's deadline is too dear to move for less


class IdleTimeout:
    """The idle timeout of connecting: `seconds` since the last sign of life, `total` in all."""

    __slots__ = ("_limit", "_scope", "_seconds")

    def __init__(self, scope: anyio.CancelScope, seconds: float, total: float | None = None) -> None:
        self._scope = scope
        self._seconds = seconds
        if total is None:
            self._limit = math.inf
        else:
            self._limit = anyio.current_time() + total
        self.touch()

    @property
    def lasted(self) -> bool:
        """Whether the total bound has passed."""
        return anyio.current_time() >= self._limit

    def touch(self) -> None:
        """Record a sign of life."""
        deadline = min(self._limit, anyio.current_time() + self._seconds)
        if abs(deadline - self._scope.deadline) > _STEP_SECONDS:
            self._scope.deadline = deadline
