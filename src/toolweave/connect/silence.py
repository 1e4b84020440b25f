"""How long a request, or connecting, may go without a sign of life. Moves the deadline of a scope; knows no wire."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import anyio

__all__ = ["Silence"]

_STEP_SECONDS = 0.001  # a scope's deadline is too dear to move for less


class Silence:
    """The bound of one request, or of connecting: `seconds` since the last sign of life, and `total` seconds in all.

    While it is held, because we are the ones who take their time, only `total` counts.
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
        """When there was a sign of life, on the event loop's clock; now, while it is held."""
        return anyio.current_time() if self._holds else self._scope.deadline - self._seconds

    @property
    def lasted(self) -> bool:
        """Whether the bound in all has come."""
        return anyio.current_time() >= self._limit

    def touch(self) -> None:
        """Take a sign of life."""
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
        """Begin to count anew."""
        self._holds -= 1
        self.touch()

    @contextmanager
    def held(self) -> Generator[None, None, None]:
        """Hold it for the block."""
        self.hold()
        try:
            yield
        finally:
            self.release()
