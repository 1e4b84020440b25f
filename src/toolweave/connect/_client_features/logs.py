"""Delivery of a server's log messages to the user's callback: in order, bounded, never fatal."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable

import anyio

from toolweave.protocol.logs import LogMessage

_log = logging.getLogger("toolweave.connect")
_MAX_WAITING = 1_000


class LogFeed:
    """A queue of log messages: a sync callback is called at once, an async one in `run`, one after the other.

    At most 1,000 messages wait for an async callback; messages beyond that are dropped.
    """

    def __init__(self, callback: Callable[[LogMessage], Awaitable[None] | None]) -> None:
        self._callback = callback
        self._is_async = inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(
            getattr(callback, "__call__", None)  # noqa: B004 - the method of an object that is called
        )
        self._waiting: deque[LogMessage] = deque()
        self._arrived = anyio.Event()
        self._lost = 0

    def put(self, message: LogMessage) -> None:
        """Deliver or queue one message; never waits."""
        if not self._is_async:
            try:
                self._callback(message)
            except Exception:  # boundary: user code must not end the conversation it listens to
                _log.exception("the logging callback raised")
        elif len(self._waiting) < _MAX_WAITING:
            self._waiting.append(message)
            self._arrived.set()
        else:
            self._lost += 1

    async def run(self) -> None:
        """Deliver the queued messages; ends only by cancellation."""
        while True:
            await self._arrived.wait()
            self._arrived = anyio.Event()
            while self._waiting:
                message = self._waiting.popleft()
                try:
                    outcome = self._callback(message)
                    if outcome is not None:
                        await outcome
                except Exception:  # boundary: user code
                    _log.exception("the logging callback raised")
                if self._lost:
                    _log.warning("server %r: %d log messages found no room", message.server, self._lost)
                    self._lost = 0
