"""A pool of connections, each shared by the users with exactly the same settings.

Knows configs and hubs, not the users of a connection.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import anyio

from toolweave.config import ServerConfig
from toolweave.errors import ConnectionClosedError
from toolweave.hub import Hub, McpClient

__all__ = ["McpPool", "same_server"]


@dataclass(eq=False, slots=True)
class _SharedConnection:
    hub: Hub = field(default_factory=Hub)
    users: int = 0


class McpPool:
    """A connection pool for many users: one connection for each identity, shared by all users of that identity.

    An identity is the server's name and all of its settings: credentials, headers, variables, arguments. So two users'
    calls never share a connection, nor a session at the server, and one user's runs need no handshake each:

        async with McpPool() as pool:
            tools = McpTools("api", config, client=pool, runtime_config={"auth": token})
            await agent.send("What is new?", tools=tools)

    A callable that gives credentials is an identity by itself: give each user one of their own.

    Args:
        max_idle: Maximum number of unused connections that are kept open, the most recently used ones.
    """

    def __init__(self, *, max_idle: int = 32) -> None:
        if max_idle < 0:
            raise ValueError(f"max_idle is at least 0, not {max_idle}")
        self._max_idle = max_idle
        self._shared: OrderedDict[ServerConfig, _SharedConnection] = OrderedDict()
        self._closed = False

    def __len__(self) -> int:
        """Number of connections, including those that are being opened."""
        return len(self._shared)

    @asynccontextmanager
    async def lease(self, config: ServerConfig) -> AsyncGenerator[McpClient]:
        """Connect with these settings, or share the connection that has them; it stays open at least until exit.

        Raises:
            ConnectionClosedError: The pool is closed.
            ServerError: The server cannot be reached.
        """
        if self._closed:
            raise ConnectionClosedError("the pool is closed; make another one", server=config.name)
        # which tools are shown, and under what names, is no matter of the connection
        key = config.replace(include=(), exclude=(), tool_prefix=None)
        shared = self._shared.setdefault(key, _SharedConnection())
        shared.users += 1
        try:
            yield await shared.hub.connect(key.name, key)
        finally:
            shared.users -= 1
            if key in self._shared:
                self._shared.move_to_end(key)
            await self._evict()

    async def close(self) -> None:
        """Close all connections, also those in use; idempotent and bounded."""
        self._closed = True
        await self._end(list(self._shared))

    async def __aenter__(self) -> Self:
        if self._closed:
            raise ConnectionClosedError("the pool is closed; make another one", server="pool")
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        used = sum(bool(shared.users) for shared in self._shared.values())
        return f"<McpPool: {len(self)} connections, {used} in use>"

    async def _evict(self) -> None:
        """Close unused connections: those that failed to open, and the oldest beyond `max_idle`."""
        idle = [key for key, shared in self._shared.items() if not shared.users]
        dead = [key for key in idle if not self._shared[key].hub.clients]
        alive = [key for key in idle if key not in dead]
        await self._end(dead + alive[: max(0, len(alive) - self._max_idle)])

    async def _end(self, keys: list[ServerConfig]) -> None:
        hubs = [self._shared.pop(key).hub for key in keys]  # at once: nobody gets one that is being closed
        if hubs:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as tasks:
                    for hub in hubs:
                        tasks.start_soon(hub.close)


def same_server(one: ServerConfig, other: ServerConfig) -> bool:
    """Whether two configs lead to the same server as the same user."""
    return _identity(one) == _identity(other)


def _identity(config: ServerConfig) -> ServerConfig:
    return ServerConfig(
        name="-",
        transport=config.transport,
        command=config.command,
        args=config.args,
        env=config.env,
        cwd=config.cwd,
        url=config.url,
        headers=config.headers,
        auth=config.auth,
        options=config.options,
        server=config.server,
    )
