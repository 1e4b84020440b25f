"""Single flight: work that several requests need is done once, and none of them can cancel it for the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import anyio

from toolweave.serve._auth.refusal import IssuerUnavailable

__all__ = ["SharedWork"]

T = TypeVar("T")


class _SharedRun(Generic[T]):
    """One piece of work that is under way."""

    __slots__ = ("done", "failure", "values")

    def __init__(self, seconds: float) -> None:
        self.done = anyio.Event()
        self.values: list[T] = []
        self.failure: Exception = IssuerUnavailable(seconds)


class SharedWork(Generic[T]):
    """Does one piece of work per key at a time; whoever needs it meanwhile gets the same outcome.

    The first that needs it does it, shielded: its client may hang up while others wait. The work is bounded in time, so
    the shield is, too.

    Args:
        seconds: The longest that a piece of work may take; then it has failed with `IssuerUnavailable`.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._flights: dict[Hashable, _SharedRun[T]] = {}

    def runs(self, key: Hashable) -> bool:
        """Whether the work of a key is under way."""
        return key in self._flights

    async def run(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        """Return the outcome of the work of a key.

        Raises:
            IssuerUnavailable: It took too long.
            Exception: Whatever the work raises.
        """
        flight = self._flights.get(key)
        if flight is not None:
            await flight.done.wait()
        else:
            flight = self._flights[key] = _SharedRun(self._seconds)
            try:
                with anyio.move_on_after(self._seconds, shield=True):
                    flight.values.append(await work())
            except Exception as exc:  # boundary: it is raised below, for everybody who waits
                flight.failure = exc
            finally:
                del self._flights[key]
                flight.done.set()
        if not flight.values:
            raise flight.failure
        return flight.values[0]
