"""The bound of a request that needs nothing but its answer, at a fraction of a cancel scope's price.

Knows no wire. What may be held or extended while it runs is bounded by `Silence` on a cancel scope instead.
"""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Self

import msgspec

__all__ = ["Deadline", "Deadlines"]


class Deadline(msgspec.Struct, eq=False):
    """`with deadlines.within(seconds) as deadline:` leaves the block when the time is over; `expired` says so.

    As `asyncio.timeout` it cancels the task it was made in, and takes back that one cancellation only. Who makes
    an error of it lets the cancel scopes around it go first: `checkpoint_if_cancelled`.

    A struct, because each call makes one: filling one costs a third of what a class with an `__init__` does.

    Attributes:
        seconds: How long it lasts; infinite for no end.
        at: The end on the event loop's clock; infinite for no end.
        task: What is cancelled then; None for no end.
        before: How often that task was cancelled before.
        expired: Whether the end has come.
    """

    seconds: float
    deadlines: Deadlines
    at: float
    task: asyncio.Task[object] | None
    before: int
    expired: bool = False

    @property
    def since(self) -> float:
        """When it began, on the event loop's clock."""
        return self.at - self.seconds

    def end(self, exc: BaseException | None = None) -> bool:
        """Stop the time, as leaving the block does; return whether what leaves it is this end and nothing else."""
        self.deadlines.running.discard(self)
        if not self.expired or self.task is None:
            return False
        # somebody else's cancellation counts more than the time
        return self.task.uncancel() <= self.before and isinstance(exc, asyncio.CancelledError)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return self.end(exc)

    def expire(self) -> None:
        """Cancel the task, once."""
        if self.task is not None and not self.expired:
            self.expired = True
            self.task.cancel()


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

    def within(self, seconds: float, loop: asyncio.AbstractEventLoop | None = None) -> Deadline:
        """Return a deadline of the running task, which begins now; who knows the running `loop` says so."""
        if seconds == math.inf:
            return Deadline(seconds, self, seconds, None, 0)
        loop = loop or asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        at = loop.time() + seconds
        deadline = Deadline(seconds, self, at, task, task.cancelling())
        self.running.add(deadline)
        if at < self.stands_at or loop is not self.loop:
            self.stand(at, loop)
        return deadline

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
