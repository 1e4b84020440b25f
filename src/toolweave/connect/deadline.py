"""The bound of a request that needs nothing but its answer, at a fraction of a cancel scope's price.

Knows no wire. What may be held or extended while it runs is bounded by `Silence` on a cancel scope instead.
"""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Self

__all__ = ["Deadline", "Deadlines"]


class Deadlines:
    """One timer for the bounds of many requests: it stands at the earliest end, and is moved when that has come.

    Nearly every request is answered long before, so that a timer of its own would be made only to be cancelled. When
    one is over the timer stays where it is, and finds nothing.

    Attributes:
        running: The deadlines that have begun and are not over.
        loop: The event loop of the timer.
        stands_at: When the timer goes off, on that loop's clock.
    """

    def __init__(self) -> None:
        self.running: set[Deadline] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stands_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def within(self, seconds: float) -> Deadline:
        """Return a deadline that begins when it is entered."""
        return Deadline(seconds, self)

    def stand(self, at: float, loop: asyncio.AbstractEventLoop) -> None:
        """Put the timer where the earliest deadline ends."""
        if self._timer is not None:
            self._timer.cancel()
        self.loop, self.stands_at = loop, at
        self._timer = loop.call_at(at, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self.stands_at = None, math.inf
        now = loop.time()
        for deadline in self.running:
            if deadline.at <= now:
                deadline.expire()
        later = [deadline.at for deadline in self.running if not deadline.expired]
        if later:
            self.stand(min(later), loop)


class Deadline:
    """`with deadlines.within(seconds) as deadline:` leaves the block when the time is over; `expired` says so.

    As `asyncio.timeout` it cancels the task it was entered in, and takes back that one cancellation only. Who makes
    an error of it lets the cancel scopes around it go first: `checkpoint_if_cancelled`.

    Attributes:
        at: The end on the event loop's clock; infinite for no end.
        expired: Whether the end has come.
    """

    __slots__ = ("_before", "_deadlines", "_seconds", "_task", "at", "expired")

    def __init__(self, seconds: float, deadlines: Deadlines) -> None:
        self._seconds = seconds
        self._deadlines = deadlines
        self._task: asyncio.Task[object] | None = None
        self._before = 0
        self.at = math.inf
        self.expired = False

    @property
    def since(self) -> float:
        """When it began, on the event loop's clock."""
        return self.at - self._seconds

    def __enter__(self) -> Self:
        if self._seconds != math.inf:
            loop = asyncio.get_running_loop()
            self._task = task = asyncio.current_task(loop)
            assert task is not None
            self._before = task.cancelling()
            self.at = loop.time() + self._seconds
            self._deadlines.running.add(self)
            if self.at < self._deadlines.stands_at or loop is not self._deadlines.loop:
                self._deadlines.stand(self.at, loop)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._deadlines.running.discard(self)
        if not self.expired or self._task is None:
            return False
        # somebody else's cancellation counts more than the time
        return self._task.uncancel() <= self._before and exc_type is asyncio.CancelledError

    def expire(self) -> None:
        """Cancel the task, once."""
        if self._task is not None and not self.expired:
            self.expired = True
            self._task.cancel()
