"""The bound of a request that needs nothing but its answer: one timer, at a quarter of a cancel scope's price.

Knows no wire. What may be held or extended while it runs is bounded by `Silence` on a cancel scope instead.
"""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Self

__all__ = ["Deadline"]


class Deadline:
    """`with Deadline(seconds) as deadline:` leaves the block when the time is over; `expired` says whether it was.

    As `asyncio.timeout` it cancels the task it was entered in, and takes back that one cancellation only. Who makes
    an error of it lets the cancel scopes around it go first: `checkpoint_if_cancelled`.

    Attributes:
        at: The end on the event loop's clock; infinite for no end.
    """

    __slots__ = ("_before", "_seconds", "_task", "_timer", "at", "expired")

    _task: asyncio.Task[object] | None
    _timer: asyncio.TimerHandle | None

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._task = self._timer = None
        self._before = 0
        self.at = math.inf
        self.expired = False

    def __enter__(self) -> Self:
        if self._seconds != math.inf:
            loop = asyncio.get_running_loop()
            self._task = task = asyncio.current_task(loop)
            assert task is not None
            self._before = task.cancelling()
            self.at = loop.time() + self._seconds
            self._timer = loop.call_at(self.at, self._expire)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if self._timer is not None:
            self._timer.cancel()
        if not self.expired or self._task is None:
            return False
        # somebody else's cancellation counts more than the time
        return self._task.uncancel() <= self._before and exc_type is asyncio.CancelledError

    def _expire(self) -> None:
        if self._task is not None:
            self.expired = True
            self._task.cancel()
