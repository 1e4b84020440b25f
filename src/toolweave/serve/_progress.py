"""Progress notifications of one request: increasing, rate-limited, and never after the answer.

Knows the notification, not the handler.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import anyio

from toolweave.protocol import methods
from toolweave.serve._task_spawner import ServingGroups
from toolweave.serve.request import Json, ReplyChannel
from toolweave.tools import Progress

INTERVAL_SECONDS = 0.05
"""Seconds in which a request earns one progress notification."""
BURST = 20
"""Maximum burst of progress notifications before the rate applies."""


class ProgressStream:
    """Sends the progress of one request, until `end`.

    Reports that do not increase are dropped. Those above the rate are delayed, or replaced by the next; the last one
    is always sent, at the latest in `end`.

    Args:
        reply_channel: The channel to the client.
        token: The request's `progressToken`.
        groups: The task groups in which a delayed notification waits.
        interval: Seconds in which one more notification may be sent.
        clock: Monotonic seconds; the event loop's by default.
    """

    # Few requests report more than the burst, so nothing is made for a delayed report before there is one: a task group
    # for each request would cost a fifth of a call. The task that waits belongs to the server's group instead, and
    # `end` waits for it, so nothing of a request is sent after its answer.

    def __init__(
        self,
        reply_channel: ReplyChannel,
        token: int | str,
        groups: ServingGroups,
        *,
        interval: float = INTERVAL_SECONDS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._reply_channel = reply_channel
        self._token = token
        self._groups = groups
        self._interval = interval
        self._clock = anyio.current_time if clock is None else clock
        self._highest = -math.inf
        self._spent = -math.inf  # the time by which everything sent will have been earned
        self._held: Progress | None = None
        self._later: _LaterReport | None = None
        self._is_ended = False

    async def report(self, progress: Progress) -> None:
        """Send or delay one report."""
        amount = progress.progress
        if self._is_ended:
            return
        if not math.isfinite(amount) or amount <= self._highest:
            return
        self._highest = amount
        self._held = progress
        if self._wait() <= 0:
            await self._send()
        elif self._later is None:
            later = self._later = _LaterReport()
            self._groups.current().start_soon(self._send_later, later)

    async def end(self, exc: BaseException | None = None) -> None:
        """Ignore later reports, and wait until a delayed one is sent; a cancelled request sends nothing more.

        Args:
            exc: The error with which the request ends, or None.

        Raises:
            Exception: The delayed report could not be sent, and the request has no error.
        """
        self._is_ended = True
        later = self._later
        if later is None:
            return
        if isinstance(exc, asyncio.CancelledError):
            later.scope.cancel()
        later.due.set()
        try:
            await later.over.wait()
        finally:
            later.scope.cancel()
            with anyio.CancelScope(shield=True):
                await later.over.wait()
        if exc is not None:
            return  # the error of the request is the one to raise
        if later.failure is not None:
            raise later.failure

    def _wait(self) -> float:
        """Return the seconds until the next notification may be sent."""
        return self._spent - (BURST - 1) * self._interval - self._clock()

    async def _send_later(self, later: _LaterReport) -> None:
        try:
            with later.scope:
                while self._held is not None:
                    with anyio.move_on_after(max(0.0, self._wait())):
                        await later.due.wait()
                    await self._send()
                # no await since the check: a report from now on starts the next task
                self._later = None
        except Exception as exc:  # boundary: the group is the server's; the request raises it
            later.failure = exc
        finally:
            later.over.set()

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
        await self._reply_channel.notify(methods.NOTIFICATIONS_PROGRESS, params)


class _LaterReport:
    """A delayed notification.

    Attributes:
        scope: Cancels it.
        due: Set when it need not wait any longer.
        over: Set when it was sent, or will not be.
        failure: Why it could not be sent.
    """

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.due = anyio.Event()
        self.over = anyio.Event()
        self.failure: Exception | None = None
