"""A limit on concurrently starting server processes: too many at once would all miss their deadlines."""

from __future__ import annotations

import os
from collections import deque
from typing import Literal

from toolweave.connect._connection import McpConnection
from toolweave.connect._state import ConnectionState

Wait = Literal["alive", "all", "any"] | float
"""A hub's wait for its servers to start: for all with signs of life, for all, for any, or at most some seconds."""


def check_wait(wait: object) -> None:
    """Validate a `wait` argument.

    Raises:
        ValueError: It is neither `"alive"`, `"all"`, `"any"` nor seconds.
    """
    seconds = isinstance(wait, (int, float)) and not isinstance(wait, bool) and wait >= 0
    if not seconds and wait not in ("alive", "all", "any"):
        raise ValueError(f"wait must be 'alive', 'all', 'any' or seconds, not {wait!r}")


class StartLimiter:
    """A limiter that starts connections; each connection's deadline counts from its own start.

    A remote server starts no process and never waits.

    Attributes:
        limit: The most processes that start at the same time; the others wait for one of them to settle.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit if limit is not None else max(24, 4 * (os.cpu_count() or 2))
        self._waiting: deque[McpConnection] = deque()
        self._starting: set[McpConnection] = set()

    def begin(self, client: McpConnection) -> None:
        """Start a connection now, or when another one has settled."""
        if client.config.transport == "stdio" and len(self._starting) >= self.limit:
            self._waiting.append(client)
            return
        if client.config.transport == "stdio":
            self._starting.add(client)
        client.start()

    def settled(self, client: McpConnection) -> None:
        """Free the start slot of a connection that is ready, failed or closed."""
        self._starting.discard(client)
        while self._waiting and len(self._starting) < self.limit:
            following = self._waiting.popleft()
            if following.state is ConnectionState.IDLE:  # else it was started by its user, or closed
                self.begin(following)
