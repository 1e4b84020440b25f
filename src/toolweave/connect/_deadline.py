"""Timeouts for requests that need nothing but their answer, at a fraction of a cancel scope's cost.

Knows no wire. A bound that may be paused or extended is an idle timeout on a cancel scope instead.
"""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Self

import msgspec


class Deadline(msgspec.Struct, eq=False):
    """`with deadlines.within(seconds) as deadline:` leaves the block when the time is over; `expired` says so.

    Like `asyncio.timeout` it cancels the task it was made in, and uncancels that one cancellation only. A caller that
    turns it into an error lets the cancel scopes around it go first: `checkpoint_if_cancelled`.

    A struct, because every call makes one: it costs a third of a class with an `__init__`.

    Attributes:
        seconds: Its length; infinite for no end.
        at: The end on the event loop's clock; infinite for no end.
        task: The task to cancel then; None for no end.
        before: The task's number of cancellations before.
        expired: Whether the end has come.
    """

    seconds: float
    deadlines: SharedTimer
    at: float
    task: asyncio.Task[object] | None
    before: int
    expired: bool = False

    @property
    def since(self) -> float:
        """The start, on the event loop's clock."""
        return self.at - self.seconds

    def end(self, exc: BaseException | None = None) -> bool:
        """Stop the timer, as leaving the block does; return whether `exc` is this deadline's own cancellation."""
        self.deadlines.running.discard(self)
        if not self.expired or self.task is None:
            return False
        # a cancellation from outside takes precedence over the deadline
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


class SharedTimer:
    """One timer for the deadlines of many requests: it is set to the earliest one, and moved when it fires.

    Nearly every request is answered long before, so that a timer of its own would be made only to be cancelled. When
    a deadline ends early the timer stays set, and finds nothing to do.

    Attributes:
        running: The deadlines that have begun and are not over.
        loop: The event loop of the timer.
        stands_at: The time at which the timer fires, on that loop's clock.
    """

    def __init__(self) -> None:
        self.running: set[Deadline] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.fires_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def within(self, seconds: float, loop: asyncio.AbstractEventLoop | None = None) -> Deadline:
        """Return a deadline of the running task, which starts now; pass the running `loop` where it is known."""
        if seconds == math.inf:
            return Deadline(seconds, self, seconds, None, 0)
        loop = loop or asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        deadline = Deadline(seconds, self, loop.time() + seconds, task, task.cancelling())
        self.add(deadline, loop)
        return deadline

    def add(self, deadline: Deadline, loop: asyncio.AbstractEventLoop) -> None:
        """Watch over a deadline that was made by hand."""
        self.running.add(deadline)
        if deadline.at < self.fires_at or loop is not self.loop:
            self.stand(deadline.at, loop)

    def stand(self, at: float, loop: asyncio.AbstractEventLoop) -> None:
        """Set the timer to the end of the earliest deadline."""
        if self._timer is not None:
            self._timer.cancel()
        self.loop, self.fires_at = loop, at
        self._timer = loop.call_at(at, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self.fires_at = None, math.inf
        now = loop.time()
        for deadline in self.running:
            if deadline.at <= now:
                deadline.expire()
        later = [deadline.at for deadline in self.running if not deadline.expired]
        if later:
            self.stand(min(later), loop)
