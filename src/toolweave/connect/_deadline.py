"""The idle timeouts of requests, at a fraction of a cancel scope's cost. Knows no wire.

Why nothing is lost: all requests share one timer, which is never later than the earliest end. An end that moves to a
later time leaves the timer where it is; it fires, finds nothing to do, and is set anew. One that moves to an earlier
time moves the timer.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import anyio
import msgspec


class Deadline(msgspec.Struct, eq=False):
    """`with deadlines.within(seconds) as deadline:` leaves the block when the time is over; `expired` says so.

    It ends `seconds` after the last sign of life (`touch`), and `limit` at the latest. While it is held, because the
    server waits for us, only `limit` counts.

    Like `asyncio.timeout` it cancels the task it was made in, and uncancels that one cancellation only. A caller that
    turns it into an error lets the cancel scopes around it go first: `checkpoint_if_cancelled`.

    A struct, because every call makes one: it costs a third of a class with an `__init__`.

    Attributes:
        seconds: Its length; infinite for no end.
        at: The end on the event loop's clock; infinite for no end.
        task: The task to cancel then; None for no end.
        before: The task's number of cancellations before.
        expired: Whether the end has come.
        limit: The end that no sign of life moves, on the event loop's clock; infinite for none.
        holds: How often it is held and was not released.
    """

    seconds: float
    deadlines: SharedTimer
    at: float
    task: asyncio.Task[object] | None
    before: int
    expired: bool = False
    limit: float = math.inf
    holds: int = 0

    @property
    def since(self) -> float:
        """The time of the last sign of life, on the event loop's clock; now, while it is held."""
        if self.holds:
            return anyio.current_time()
        return self.at - self.seconds

    def touch(self) -> None:
        """Record a sign of life."""
        if not self.holds:
            self.at = min(self.limit, anyio.current_time() + self.seconds)
            self.deadlines.moved(self)

    def hold(self, times: int = 1) -> None:
        """Stop counting until `release` was called as often."""
        # The end moves to the limit, usually never. The timer stays where it is: it fires, finds that this one is not
        # due, and is set to the earliest of the others.
        self.holds += times
        if self.holds:
            self.at = self.limit
            self.deadlines.moved(self)

    def release(self) -> None:
        """Restart the count, once released as often as held."""
        self.holds -= 1
        self.touch()

    @contextmanager
    def held(self) -> Generator[None, None, None]:
        """Hold it during the block."""
        self.hold()
        try:
            yield
        finally:
            self.release()

    def end(self, exc: BaseException | None = None) -> bool:
        """Stop the timer, as leaving the block does; return whether `exc` is this deadline's own cancellation."""
        self.deadlines.running.discard(self)
        # it may be ended again, and uncancels once
        task = self.task
        self.task = None
        if not self.expired or task is None:
            return False
        # a cancellation from outside takes precedence over the deadline
        return task.uncancel() <= self.before and isinstance(exc, asyncio.CancelledError)

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

    Nearly every request is answered long before, so that another timer would be made only to be cancelled. When
    a deadline ends early the timer stays set, and finds nothing to do.

    Attributes:
        running: The deadlines that have begun and are not over.
        loop: The event loop of the timer.
        fires_at: The time at which the timer fires, on that loop's clock; infinite while it is not set.
    """

    def __init__(self) -> None:
        self.running: set[Deadline] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.fires_at: float = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def within(
        self, seconds: float, loop: asyncio.AbstractEventLoop | None = None, total: float | None = None
    ) -> Deadline:
        """Return a deadline of the running task, which starts now.

        Args:
            seconds: How long it waits for a sign of life; infinite for no end.
            loop: The running event loop, where it is known.
            total: How long it lasts with all signs of life, in seconds; None for no end.
        """
        if seconds == math.inf and total is None:
            deadline = Deadline(seconds, self, seconds, None, 0)
            self.running.add(deadline)
            return deadline
        if loop is None:
            loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        now = loop.time()
        limit = math.inf if total is None else now + total
        deadline = Deadline(seconds, self, min(now + seconds, limit), task, task.cancelling(), limit=limit)
        self.add(deadline, loop)
        return deadline

    def add(self, deadline: Deadline, loop: asyncio.AbstractEventLoop) -> None:
        """Watch over a deadline that was made by hand."""
        self.running.add(deadline)
        if deadline.at < self.fires_at or loop is not self.loop:
            self.stand(deadline.at, loop)

    def moved(self, deadline: Deadline) -> None:
        """Watch over a deadline whose end has moved."""
        if deadline.at < self.fires_at and self.loop is not None and deadline in self.running:
            self.stand(deadline.at, self.loop)

    def stand(self, at: float, loop: asyncio.AbstractEventLoop) -> None:
        """Set the timer to the end of the earliest deadline."""
        if self._timer is not None:
            self._timer.cancel()
        self.loop = loop
        self.fires_at = at
        self._timer = loop.call_at(at, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self.fires_at = math.inf
        now = loop.time()
        # `expire` cancels a task or completes a future, and both run later: the set does not change here.
        for deadline in self.running:
            if deadline.at <= now:
                deadline.expire()
        ends = [deadline.at for deadline in self.running if not deadline.expired]
        earliest = min(ends, default=math.inf)
        # One that is held and has no limit moves itself once it is released.
        if earliest < math.inf:
            self.stand(earliest, loop)
