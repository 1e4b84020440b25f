"""An idle timeout for requests and for connecting, on the deadline of a cancel scope. Knows no wire."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import anyio

_STEP_SECONDS = 0.001  # a scope's deadline is too dear to move for less


class IdleTimeout:
    """The idle timeout of one request, or of connecting: `seconds` since the last sign of life, `total` in all.

    While it is held, because the server waits for us, only `total` counts.
    """

    __slots__ = ("_holds", "_limit", "_scope", "_seconds")

    def __init__(self, scope: anyio.CancelScope, seconds: float, total: float | None = None) -> None:
        self._scope = scope
        self._seconds = seconds
        self._limit = float("inf") if total is None else anyio.current_time() + total
        self._holds = 0
        self.touch()

    @property
    def since(self) -> float:
        """The time of the last sign of life, on the event loop's clock; now, while it is held."""
        return anyio.current_time() if self._holds else self._scope.deadline - self._seconds

    @property
    def lasted(self) -> bool:
        """Whether the total bound has passed."""
        return anyio.current_time() >= self._limit

    def touch(self) -> None:
        """Record a sign of life."""
        if not self._holds:
            deadline = min(self._limit, anyio.current_time() + self._seconds)
            if abs(deadline - self._scope.deadline) > _STEP_SECONDS:
                self._scope.deadline = deadline

    def hold(self, times: int = 1) -> None:
        """Stop counting until `release` was called as often."""
        self._holds += times
        if self._holds:
            self._scope.deadline = self._limit

    def release(self) -> None:
        """Restart the count, once released as often as held."""
        self._holds -= 1
        self.touch()

    @contextmanager
    def held(self) -> Generator[None, None, None]:
        """Hold it during the block."""
        self.hold()
        try:
            yield
        finally:
            self.release()
