"""The log levels of callers, at the upstreams that log.

A modern upstream gets the caller's level with each request, which the relay sees to. A legacy one has one level for
all callers that share its session: the most talkative of theirs. The messages are filtered for each caller.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import anyio

from toolweave.connect import McpConnection
from toolweave.errors import RequestError, ServerError
from toolweave.gateway._features.capabilities import declares
from toolweave.gateway._relay.handshake_connections import HandshakeConnections
from toolweave.hub import Hub
from toolweave.hub._hub import caller_servers
from toolweave.hub._starting import USABLE
from toolweave.protocol import methods
from toolweave.protocol.codes import METHOD_NOT_FOUND
from toolweave.protocol.logs import LEVELS, LogLevel
from toolweave.protocol.versions import HANDSHAKE_VERSIONS
from toolweave.serve import Request
from toolweave.serve._changes import Changes
from toolweave.serve._logs import Logs
from toolweave.serve.request import Json, Method

_log = logging.getLogger("toolweave.gateway")

_SET_SECONDS = 5.0
"""Seconds that a caller waits for slow upstreams to take its level."""


class UpstreamLogs:
    """The feature: `logging/setLevel`, passed on.

    Args:
        hub: The upstreams.
        changes: Knows the sessions that are open.
        logs: Keeps the level of each caller.
        handshakes: The connections in the handshake era to upstreams that speak both.
    """

    def __init__(self, hub: Hub, changes: Changes, logs: Logs, handshakes: HandshakeConnections) -> None:
        self._hub = hub
        self._changes = changes
        self._logs = logs
        self._handshakes = handshakes

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return `logging/setLevel`, which modern revisions lack."""
        if modern:
            return {}
        return {methods.LOGGING_SET_LEVEL: self._set_level}

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """Return nothing: the capability is that of the upstreams."""
        return {}

    async def _set_level(self, request: Request) -> Json:
        logs = any(declares(one, "logging") for one in self._hub.clients.values())
        # Servers that connect by caller may log, too: they are not connected yet, so nothing is known of their
        # capabilities.
        if not logs and not caller_servers(self._hub).configs:
            raise RequestError("Method not found", code=METHOD_NOT_FOUND, data=request.method)
        result = await self._logs.set_level(request)
        wanted = self._handshakes.log_level = self._lowest_level()
        if wanted is None:
            return result
        # The caller's own filter is set already. A slow upstream only sends more than is passed on.
        with anyio.move_on_after(_SET_SECONDS):
            async with anyio.create_task_group() as tasks:
                for connection in (*self._hub.clients.values(), *self._handshakes):
                    legacy = connection.protocol_version in HANDSHAKE_VERSIONS
                    if legacy and connection.state in USABLE and declares(connection, "logging"):
                        tasks.start_soon(_set, connection, wanted)
        return result

    def _lowest_level(self) -> LogLevel | None:
        """Return the least severe level that an open session wants; None when none has a name."""
        levels = self._logs.levels()
        wanted = {one for conversation, one in levels.items() if self._changes.conversation(conversation) is not None}
        return next((level for level in LEVELS if level in (wanted or levels.values())), None)


async def _set(connection: McpConnection, level: LogLevel) -> None:
    try:
        await connection.set_log_level(level)
    except ServerError as error:
        _log.warning("%s; its log level stays as it is", error)
