"""Progress and log messages of upstreams on their way to a caller: in order, bounded, on its request's own stream.

Knows no upstream. Notifications that arrived before the answer are sent before the answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio

from toolweave._json_types import as_text
from toolweave.protocol import methods
from toolweave.serve import Request
from toolweave.serve._envelope import is_progress_token
from toolweave.serve._logs import Logs
from toolweave.serve.request import Json

_MAX_WAITING = 256
_NEWS = frozenset({methods.NOTIFICATIONS_MESSAGE, methods.NOTIFICATIONS_ELICITATION_COMPLETE})
"""The notifications beside progress that belong to a request."""


class CallerStream:
    """The stream of notifications to the caller of one request.

    A caller that does not read gets the newest progress instead of the queued one, and no more log messages.

    Args:
        request: The caller's request.
        logs: Knows which log messages a caller wants.
    """

    def __init__(self, request: Request, logs: Logs) -> None:
        self._request = request
        self._logs = logs
        token = request.meta.get("progressToken")
        self._token = token if is_progress_token(token) else None
        self._waiting: deque[tuple[str, Json]] = deque()
        self._news = anyio.Event()
        self._ended = False

    @property
    def wants_progress(self) -> bool:
        """Whether the caller asked for progress."""
        return self._token is not None

    def progress(self, params: Mapping[str, Any]) -> None:
        """Queue a progress notification under the caller's token; never waits."""
        if self.wants_progress:
            self._put(methods.NOTIFICATIONS_PROGRESS, {**params, "progressToken": self._token})

    def news(self, method: str, params: Mapping[str, Any]) -> None:
        """Queue another notification if the caller wants it; never waits."""
        if method not in _NEWS or (method == methods.NOTIFICATIONS_ELICITATION_COMPLETE and self._request.modern):
            return
        is_log = method == methods.NOTIFICATIONS_MESSAGE
        if is_log and not self._logs.wants(self._request, as_text(params.get("level"))):
            return
        self._put(method, dict(params))

    def _put(self, method: str, params: Json) -> None:
        if self._ended:
            return
        if len(self._waiting) >= _MAX_WAITING:
            if self._waiting[-1][0] != method or method == methods.NOTIFICATIONS_MESSAGE:
                return
            self._waiting.pop()
        self._waiting.append((method, params))
        self._news.set()

    @property
    def _wanted(self) -> bool:
        """Whether there is anything that the caller could get."""
        return self.wants_progress or not self._request.modern or self._logs.level(self._request) is not None

    @asynccontextmanager
    async def delivered(self) -> AsyncGenerator[None]:
        """Deliver during the block; all that came in it is sent when it is left."""
        if not self._wanted:
            yield
            return
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._deliver)
            try:
                yield
            except Exception as exc:  # boundary: kept out of the task group, which would wrap it
                failure = exc
            finally:
                self._ended = True
                self._news.set()
        if failure is not None:
            raise failure

    async def _deliver(self) -> None:
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            while self._waiting:
                method, params = self._waiting.popleft()
                await self._request.reply_channel.notify(method, params)
            if self._ended:
                return
