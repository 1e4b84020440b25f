"""Progress notifications of one request, delivered to its callback one after the other.

Why none is lost or overtaken: a notification is delivered as it arrives, in the context of the request, unless the
callback's last outcome is still awaited. That is done by a task of the connection, which then delivers what has arrived
meanwhile, and ends when nothing is left. So a request whose server reports nothing starts no task.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context

import anyio

from toolweave.connect._deadline import Deadline
from toolweave.connect._session import ClientHandlers
from toolweave.tools import Progress, ProgressCallback

_log = logging.getLogger("toolweave.connect")


class ProgressFeed:
    """A queue of progress notifications, delivered to a sync or async callback one after the other.

    Args:
        callback: Gets each notification.
        touch: Called for every notification at once: it is the sign of life that moves a deadline.
        start: Starts a task that ends with the session at the latest.
    """

    def __init__(self, callback: ProgressCallback, touch: Callable[[], None], start: Callable[..., object]) -> None:
        self._callback = callback
        self._touch = touch
        self._start = start
        self._context = copy_context()
        self._waiting: deque[Progress] = deque()
        self._scope: anyio.CancelScope | None = None
        self._idle: anyio.Event | None = None

    def put(self, progress: Progress) -> None:
        """Deliver one notification, or queue it while an earlier one is delivered; never waits."""
        self._touch()
        self._waiting.append(progress)
        if self._scope is None:
            self._context.run(self._deliver)

    async def finished(self) -> None:
        """Wait until all that has arrived is delivered."""
        while self._idle is not None:
            await self._idle.wait()

    def cancel(self) -> None:
        """Deliver no more, and cancel the callback that runs."""
        self._waiting.clear()
        if self._scope is not None:
            self._scope.cancel()

    def _deliver(self) -> None:
        """Deliver the waiting notifications, in a task as soon as an outcome must be awaited."""
        outcome = self._next_outcome()
        if outcome is not None:
            # Set before the task runs: a notification that arrives meanwhile is queued for it.
            self._scope = anyio.CancelScope()
            self._idle = anyio.Event()
            self._start(self._run, self._scope, outcome)

    def _next_outcome(self) -> Awaitable[object] | None:
        while self._waiting:
            try:
                outcome = self._callback(self._waiting.popleft())
            except Exception:  # boundary: user code must not fail the call it watches
                _log.exception("a progress callback raised")
                continue
            if inspect.isawaitable(outcome):
                return outcome
        return None

    async def _run(self, scope: anyio.CancelScope, outcome: Awaitable[object] | None) -> None:
        try:
            with scope:
                while outcome is not None:
                    try:
                        await outcome
                    except Exception:  # boundary: user code must not fail the call it watches
                        _log.exception("a progress callback raised")
                    outcome = self._next_outcome()
        # Also when cancelled, or `finished` would wait for ever.
        finally:
            idle = self._idle
            self._idle = None
            self._scope = None
            if idle is not None:
                idle.set()


class ProgressWatch:
    """The progress of one call: its token, and the delivery of its notifications until `end`.

    Attributes:
        feed: Delivers the notifications.
        token: The progress token of the call.
    """

    def __init__(self, handlers: ClientHandlers, callback: ProgressCallback, deadline: Deadline) -> None:
        self.feed = ProgressFeed(callback, deadline.touch, handlers.start_task)
        self.token = handlers.watch_progress(self.feed.put)
        self._handlers = handlers

    def end(self) -> None:
        """Drop later notifications, and cancel a delivery under way."""
        self._handlers.forget_progress(self.token)
        self.feed.cancel()
