"""The start of a hub's servers: how many start at once, and which ones others wait for."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Literal

import anyio

from toolweave._json_types import as_number
from toolweave._option_checks import TEXT, check_kind, instance_of
from toolweave.connect import ConnectionState, McpConnection, StateChanged
from toolweave.connect._activity import ActivityMonitor

_log = logging.getLogger("toolweave.hub")

_LOOK_SECONDS = 0.5

USABLE = frozenset({ConnectionState.READY, ConnectionState.DEGRADED})
"""The states of a connection that answers."""
STARTING = frozenset({ConnectionState.IDLE, ConnectionState.CONNECTING})
"""The states of one that may become ready."""
FAILED = frozenset({ConnectionState.FAILED, ConnectionState.AUTH_REQUIRED})
OVER = FAILED | {ConnectionState.CLOSED}
"""The states of one that is not going to be ready by itself."""

Wait = Literal["alive", "all", "any"] | float
"""A hub's wait for its servers to start: for all with signs of life, for all, for any, or at most some seconds."""


_NAME = TEXT._replace(shown="the name of a server")
_NAMES = instance_of(Iterable, "the names of servers, or None for all")


def chosen_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the servers to start.

    Raises:
        TypeError: The names are neither a text nor a sequence of texts.
    """
    if isinstance(names, str):
        return (names,)
    check_kind("names", names, _NAMES)
    chosen = tuple(names)
    for name in chosen:
        check_kind("each of names", name, _NAME)
    return chosen


def check_wait(wait: object) -> None:
    """Validate a `wait` argument.

    Raises:
        ValueError: It is neither `"alive"`, `"all"`, `"any"` nor seconds.
    """
    seconds = as_number(wait)
    is_valid = seconds is not None and seconds >= 0
    if not is_valid and wait not in ("alive", "all", "any"):
        raise ValueError(f"wait must be 'alive', 'all', 'any' or seconds, not {wait!r}")


class StartLimiter:
    """A limiter that starts connections; each connection's deadline counts from its own start.

    Too many processes that start at once would all miss their deadlines. A remote server starts no process and never
    waits.

    Attributes:
        limit: The most processes that start at the same time; the others wait for one of them to settle.
    """

    def __init__(self, limit: int | None = None) -> None:
        if limit is not None:
            self.limit = limit
        else:
            self.limit = max(24, 4 * (os.cpu_count() or 2))
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
            if following.state is ConnectionState.IDLE:
                # Else it was started by its user, or closed.
                self.begin(following)


class ServerStarts:
    """The starting connections of a hub, and the tasks that wait for them.

    Args:
        clients: The hub's connections by server name; a live view.
        patience: Seconds without a sign of life after which nobody waits for a server any more.
    """

    def __init__(self, clients: Mapping[str, McpConnection], patience: float) -> None:
        self._clients = clients
        self._patience = patience
        self._limiter = StartLimiter()
        self._silent: set[str] = set()
        self._silences: Mapping[str, float] = {}
        # One event for all waiters, replaced before it is set: who looks at the states and then waits on the event it
        # took before looking misses no change, and no waiter is woken twice for one.
        self._moved = anyio.Event()

    @property
    def silences(self) -> Mapping[str, float]:
        """Seconds without a sign of life of each starting server, as of the last check."""
        return {name: seconds for name, seconds in self._silences.items() if name in self._clients}

    def begin(self, client: McpConnection) -> None:
        """Start a connection, now or when there is room for its process."""
        self._limiter.begin(client)

    def changed(self, client: McpConnection, change: StateChanged) -> None:
        """Note a change of state: it may free a start slot, and waiters look again."""
        if change.previous is ConnectionState.CONNECTING or change.state is ConnectionState.CLOSED:
            self._limiter.settled(client)
        self._wake()

    async def until_usable_or_over(self, client: McpConnection) -> None:
        """Wait until a connection is usable or has ended."""
        while client.state not in USABLE | OVER and not client.away:
            await self._moved.wait()

    async def until_settled(self, wait: Wait) -> None:
        """Wait until the starting servers are ready or have failed, as `wait` defines it."""
        async with anyio.create_task_group() as tasks:
            if wait == "alive":
                self._silent.clear()
                tasks.start_soon(self._watch)
            with anyio.move_on_after(wait if isinstance(wait, (int, float)) else None):
                await self._until_settled(wait)
            tasks.cancel_scope.cancel()

    async def _until_settled(self, wait: Wait) -> None:
        while True:
            moved = self._moved
            waiting = [client for client in self._clients.values() if client.state in STARTING]
            if wait == "alive":
                waiting = [client for client in waiting if client.name not in self._silent]
            usable = any(client.state in USABLE for client in self._clients.values())
            if not waiting or (wait == "any" and usable):
                return
            await moved.wait()

    async def _watch(self) -> None:
        """Detect starting servers without a sign of life: waiters skip them, and their start slots are freed."""
        silences = ActivityMonitor()
        while True:
            await anyio.sleep(min(_LOOK_SECONDS, self._patience / 4))
            starting = [client for client in self._clients.values() if client.state is ConnectionState.CONNECTING]
            self._silences = await silences.look(starting)
            for name, seconds in self._silences.items():
                if seconds >= self._patience and name not in self._silent:
                    _log.warning("server %r: no sign of life for %.3g s; others do not wait for it", name, seconds)
                    self._silent.add(name)
                    # Its slot goes to the next one although its process lives: else a few servers that hang at their
                    # start would keep all that are queued behind them from ever starting.
                    if (client := self._clients.get(name)) is not None:
                        self._limiter.settled(client)
                    self._wake()

    def _wake(self) -> None:
        event = self._moved
        self._moved = anyio.Event()
        event.set()
