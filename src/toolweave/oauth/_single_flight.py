"""Single flight: work that several callers need at the same time is done once, and all of them share its outcome.

Why no caller starves: who begins the work does it in its own task, so nothing is left running when all are gone. While
others wait for it there are two ways to treat a beginner that is cancelled. Bounded work is shielded, and the bound
ends the shield. Unbounded work, such as a sign-in that a person takes minutes for, ends with its beginner, and the
first of those who wait begins it again. An outcome is set before the waiters are woken: none of them sees half of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import anyio

T = TypeVar("T")


class _Run(Generic[T]):
    """One piece of work that is under way; without a value and a failure it was cancelled."""

    __slots__ = ("failure", "over", "values")

    def __init__(self) -> None:
        self.over = anyio.Event()
        self.values: list[T] = []
        self.failure: Exception | None = None


def _itself(error: Exception) -> Exception:
    return error


class SingleFlight(Generic[T]):
    """Runs one piece of work per key at a time; concurrent callers share its outcome.

    Args:
        seconds: The longest that a piece of work may take, in which no caller can cancel it for the others; None leaves
            it to its caller, and after a cancellation another caller begins it again.
        late: Makes the failure of work that takes longer, by default a `TimeoutError`.
        again: Makes the failure of those who waited from that of the one who did the work: each may need its own.
    """

    def __init__(
        self,
        seconds: float | None = None,
        *,
        late: Callable[[], Exception] = TimeoutError,
        again: Callable[[Exception], Exception] = _itself,
    ) -> None:
        self._seconds = seconds
        self._late = late
        self._again = again
        self._runs: dict[Hashable, _Run[T]] = {}

    def runs(self, key: Hashable) -> bool:
        """Whether the work of a key is under way."""
        return key in self._runs

    async def run(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        """Return the outcome of the work of a key.

        Raises:
            Exception: Whatever the work raises, or what `late` makes.
        """
        while (run := self._runs.get(key)) is not None:
            await run.over.wait()
            if run.values:
                return run.values[0]
            if run.failure is not None:
                raise self._again(run.failure)
        run = self._runs[key] = _Run[T]()
        try:
            return await self._done(run, work)
        except Exception as exc:  # boundary: all waiters get the same failure
            run.failure = exc
            raise
        finally:
            del self._runs[key]
            run.over.set()

    async def _done(self, run: _Run[T], work: Callable[[], Awaitable[T]]) -> T:
        if self._seconds is None:
            run.values.append(await work())
        else:
            with anyio.move_on_after(self._seconds, shield=True):
                run.values.append(await work())
        if not run.values:
            raise self._late()
        return run.values[0]
