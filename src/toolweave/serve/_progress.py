"""Progress notifications of one request: increasing, rate-limited, and never after the answer.

Knows the notification, not the handler.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from toolweave.protocol import methods
from toolweave.serve._request import Json, ReplyChannel
from toolweave.tools._call import Progress

INTERVAL_SECONDS = 0.05
"""Seconds in which a request earns one progress notification."""
BURST = 20
"""Maximum burst of progress notifications before the rate applies."""


class ProgressStream:
    """Sends the progress of one request.

    Reports that do not increase are dropped. Those above the rate are delayed, or replaced by the next; the last one
    is always sent, at the latest after `end`.

    Args:
        line: The reply channel to the client.
        token: The request's `progressToken`.
        tasks: The task group of delayed notifications; they end soon after `end`.
        interval: Seconds in which one more notification may be sent.
        clock: Monotonic seconds; the event loop's by default.
    """

    def __init__(
        self,
        line: ReplyChannel,
        token: int | str,
        tasks: TaskGroup,
        *,
        interval: float = INTERVAL_SECONDS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._line = line
        self._token = token
        self._tasks = tasks
        self._interval = interval
        self._clock = anyio.current_time if clock is None else clock
        self._highest = -math.inf
        self._spent = -math.inf  # the time by which everything sent will have been earned
        self._held: Progress | None = None
        self._waiting = False
        self._ended = anyio.Event()

    async def report(self, progress: Progress) -> None:
        """Send or delay one report."""
        amount = progress.progress
        if self._ended.is_set() or not (math.isfinite(amount) and amount > self._highest):
            return
        self._highest = amount
        self._held = progress
        if self._wait() <= 0:
            await self._send()
        elif not self._waiting:
            self._waiting = True
            self._tasks.start_soon(self._send_later)

    def end(self) -> None:
        """End the progress: a delayed report is sent, later ones are ignored."""
        self._ended.set()

    def _wait(self) -> float:
        """Return the seconds until the next notification may be sent."""
        return self._spent - (BURST - 1) * self._interval - self._clock()

    async def _send_later(self) -> None:
        with anyio.move_on_after(max(0.0, self._wait())):
            await self._ended.wait()
        self._waiting = False
        await self._send()

    async def _send(self) -> None:
        progress = self._held
        self._held = None
        if progress is None:
            return  # a later one was sent meanwhile
        self._spent = max(self._spent, self._clock()) + self._interval
        params: Json = {"progressToken": self._token, "progress": progress.progress}
        if progress.total is not None and math.isfinite(progress.total):
            params["total"] = progress.total
        if progress.message is not None:
            params["message"] = progress.message
        await self._line.notify(methods.NOTIFICATIONS_PROGRESS, params)
