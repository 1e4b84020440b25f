"""Changes to the upstreams of a gateway that serves requests: connected, replaced, retired.

A replacement is connected first and takes the place of its predecessor in one step; the predecessor is closed once the
requests that may still use it have ended. Where the replacement fails, the predecessor stays: see `not_applied`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import anyio
import anyio.abc

from toolweave.config import ServerConfig
from toolweave.connect import ConnectionState, McpConnection
from toolweave.errors import DuplicateToolError, ToolweaveError
from toolweave.gateway._admin.in_flight import InFlightRequests
from toolweave.gateway._config.reload import ConfigChange
from toolweave.hub import Hub
from toolweave.hub._hub import caller_servers

_log = logging.getLogger("toolweave.gateway")

RETIRE_SECONDS = 600.0
"""Seconds for which requests may hold an upstream that was removed."""
_POLL_SECONDS = 0.1
_USABLE = frozenset({ConnectionState.READY, ConnectionState.DEGRADED})


class FailedSettings(NamedTuple):
    """New settings of an upstream that could not be connected.

    Attributes:
        config: The settings.
        error: The error of connecting with them.
    """

    config: ServerConfig
    error: Exception


class UpstreamChanges:
    """Applies changes to the upstreams of a hub.

    Args:
        hub: The upstreams.
        in_flight: The requests under way, which may hold an upstream that was removed.

    Attributes:
        not_applied: The new settings that failed, by upstreams, which keep their earlier connection.
    """

    def __init__(self, hub: Hub, in_flight: InFlightRequests) -> None:
        self.not_applied: dict[str, FailedSettings] = {}
        self._hub = hub
        self._in_flight = in_flight
        self._pending: dict[str, tuple[str, anyio.CancelScope]] = {}
        self._retiring: set[McpConnection] = set()
        self._tasks: anyio.abc.TaskGroup | None = None

    def open(self, tasks: anyio.abc.TaskGroup) -> None:
        """Retire upstreams in this task group from now on."""
        self._tasks = tasks

    def close(self) -> None:
        """Retire no more upstreams: the hub closes them all."""
        self._tasks = None

    @property
    def pending(self) -> Mapping[str, str]:
        """The upstreams that are connecting now: `"starting"`, or `"replacing"` an earlier connection."""
        return {name: kind for name, (kind, _) in self._pending.items()}

    @property
    def retiring(self) -> int:
        """The number of removed upstreams that still answer requests."""
        return len(self._retiring)

    async def apply(
        self, change: ConfigChange, wanted: Mapping[str, ServerConfig], retried: Sequence[str] = ()
    ) -> dict[str, Exception]:
        """Make a change; return the upstreams that could not be connected, each with the error.

        Args:
            change: The upstreams that were added, changed and removed.
            wanted: The settings of all upstreams, as they are when each one is connected.
            retried: Unchanged upstreams to connect once more.
        """
        for name in change.removed:
            await self.remove(name)
        failed: dict[str, Exception] = {}
        async with anyio.create_task_group() as tasks:
            for name in (*change.added, *change.changed, *retried):
                config = wanted.get(name)
                if config is not None:  # else it was removed meanwhile
                    self._stop_pending(name)
                    tasks.start_soon(self._connect, name, config, failed)
        return failed

    async def remove(self, name: str) -> None:
        """Remove an upstream: its tools are gone at once, its requests may finish."""
        self._stop_pending(name)
        self.not_applied.pop(name, None)
        await self._detach(name)

    async def _detach(self, name: str) -> None:
        with suppress(KeyError):
            self._retire(await self._hub.detach(name))

    async def _connect(self, name: str, config: ServerConfig, failed: dict[str, Exception]) -> None:
        """Connect an upstream, and let it take the place of the one of its name if there is one."""
        self.not_applied.pop(name, None)
        if config.as_caller:
            await self._detach(name)
            caller_servers(self._hub).keep(config)
            return
        serving = self._hub.clients.get(name)
        replaces = serving is not None and serving.state in _USABLE
        with anyio.CancelScope() as scope:
            self._pending[name] = ("replacing" if replaces else "starting", scope)
            try:
                if replaces:
                    self._retire(await self._hub.replace(name, config))
                    return
                await self._detach(name)
                await self._hub.connect(name, config)
            except DuplicateToolError as error:
                failed[name] = error  # it stays, without tools
            except Exception as error:  # boundary: a fault of one server must not end the gateway
                failed[name] = error
                if replaces:
                    self.not_applied[name] = FailedSettings(config, error)
                if replaces:
                    rest = "; the connection with the earlier settings stays in use"
                else:
                    rest = ""
                _log.error("%s%s", error, rest, exc_info=not isinstance(error, ToolweaveError | OSError))
            finally:
                if self._pending.get(name, (None, None))[1] is scope:
                    del self._pending[name]

    def _stop_pending(self, name: str) -> None:
        kind_and_scope = self._pending.pop(name, None)
        if kind_and_scope is not None:
            kind_and_scope[1].cancel()

    def _retire(self, connection: McpConnection | None) -> None:
        """Close a connection that is out of the hub once its requests have ended."""
        if connection is not None and self._tasks is not None:
            self._tasks.start_soon(self._close_when_idle, connection)

    async def _close_when_idle(self, connection: McpConnection) -> None:
        self._retiring.add(connection)
        try:
            with anyio.move_on_after(RETIRE_SECONDS):
                await self._in_flight.earlier_ended()
                # a call that is kept while its caller answers a question has no request
                while connection.busy:
                    await anyio.sleep(_POLL_SECONDS)
        finally:
            with anyio.CancelScope(shield=True):
                await connection.close()
            self._retiring.discard(connection)
