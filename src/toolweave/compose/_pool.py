"""A pool of connections, each shared by the users with exactly the same settings.

Knows configs and hubs, not the users of a connection.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeAlias

import anyio

from toolweave._option_checks import COUNT, NUMBER, OptionKind, check_kinds
from toolweave.config import ServerConfig
from toolweave.errors import AuthRequiredError, ConfigError, ConnectionClosedError, RequestTimeoutError
from toolweave.hub import Hub
from toolweave.hub._hub import McpConnection

_Identity: TypeAlias = tuple[str, tuple[str, ...], ServerConfig]
"""The principal, the scopes and the settings of a connection: the first two distinguish those of one server quickly."""

_KINDS: Mapping[str, OptionKind] = {
    "max_idle": COUNT._replace(shown="a whole number of connections"),
    "max_connections": COUNT._replace(shown="a whole number").or_none,
    "idle_seconds": NUMBER._replace(shown="a number of seconds"),
}

_ROOM_SECONDS = 30.0
"""Seconds to wait for another user's connection to be returned, where the settings have no bound for connecting."""


@dataclass(eq=False, slots=True)
class _SharedConnection:
    hub: Hub = field(default_factory=Hub)
    users: int = 0
    left_at: float = 0.0


class McpPool:
    """A connection pool for many users: one connection for each identity, shared by all users of that identity.

    An identity is the server's name and all of its settings: credentials, headers, variables, arguments. So two users'
    calls never share a connection, nor a session at the server, and one user's runs need no handshake each:

        async with McpPool() as pool:
            tools = McpTools("api", config, client=pool, runtime_config={"auth": token})
            await agent.send("What is new?", tools=tools)

    Where users are signed in to the server themselves, a handler leases the connection of its caller:

        async with pool.lease(config, principal=ctx.principal) as api:
            return await api.call_tool("whoami")

    A callable that gives credentials is an identity by itself: give each user one of their own.

    Args:
        max_idle: Maximum number of unused connections that are kept open, the most recently used ones.
        max_connections: Maximum number of connections in all; a lease beyond waits until one is returned. None for no
            bound.
        idle_seconds: Seconds for which an unused connection is kept; it is closed at the next use of the pool.
    """

    def __init__(self, *, max_idle: int = 32, max_connections: int | None = None, idle_seconds: float = 300.0) -> None:
        given = {"max_idle": max_idle, "max_connections": max_connections, "idle_seconds": idle_seconds}
        check_kinds(given, _KINDS)
        if max_idle < 0:
            raise ValueError(f"max_idle is at least 0, not {max_idle}")
        if max_connections is not None and max_connections < 1:
            raise ValueError(f"max_connections is at least 1, not {max_connections}")
        self._max_idle = max_idle
        self._max_connections = max_connections
        self._idle_seconds = idle_seconds
        self._shared: OrderedDict[_Identity, _SharedConnection] = OrderedDict()
        self._returned = anyio.Event()
        self._closed = False

    def __len__(self) -> int:
        """Number of connections, including those that are being opened."""
        return len(self._shared)

    @asynccontextmanager
    async def lease(
        self, config: ServerConfig, *, principal: str | None = "", scopes: Sequence[str] = ()
    ) -> AsyncGenerator[McpConnection]:
        """Connect with these settings, or share the connection that has them; it stays open at least until exit.

        Args:
            config: The settings of the server.
            principal: On whose behalf, such as `ctx.principal` of a handler: the connection is that of this principal's
                own sign-in (`OAuth.principal`) and of no other. Empty for the one that the settings name; None, a
                caller without an identity, is refused.
            scopes: The scopes that the sign-in asks for, in place of those of the settings.

        Raises:
            AuthRequiredError: The principal is None, or is not signed in to the server.
            ConfigError: A principal or scopes are given, and the settings sign in to nothing.
            ConnectionClosedError: The pool is closed.
            RequestTimeoutError: All connections are in use for longer than the settings' bound for connecting.
            ServerError: The server cannot be reached.
        """
        # A prefix is not a matter of the connection. Filters are: what its config denies, nobody gets by leasing it.
        settings = _on_behalf_of(config, principal, scopes).replace(tool_prefix=None)
        identity: _Identity = (principal or "", tuple(scopes), settings)
        shared = await self._place(identity)
        try:
            yield await shared.hub.connect(settings.name, settings)
        finally:
            shared.users -= 1
            shared.left_at = anyio.current_time()
            # Closed meanwhile, perhaps, by `close` or in favour of another identity; a connection that is gone is not
            # moved.
            if identity in self._shared:
                self._shared.move_to_end(identity)
            await self._evict()
            self._returned.set()
            self._returned = anyio.Event()

    async def close(self) -> None:
        """Close all connections, also those in use; idempotent and bounded."""
        self._closed = True
        await self._end(list(self._shared))
        self._returned.set()

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

    async def _place(self, identity: _Identity) -> _SharedConnection:
        """Return the connection of an identity, or a new one as soon as there is room for it; it counts as used."""
        config = identity[2]
        seconds = config.timeout.connect or _ROOM_SECONDS
        deadline = anyio.current_time() + seconds
        while True:
            if self._closed:
                raise ConnectionClosedError("the pool is closed; make another one", server=config.name)
            if identity in self._shared or self._has_room():
                shared = self._shared.setdefault(identity, _SharedConnection())
                # Counted without yielding since the look-up: what has users is not evicted, so it is not closed under
                # its caller.
                shared.users += 1
                return shared
            # Closing took time, in which another task may have taken the room. So the state is looked at again from the
            # start.
            if await self._made_room():
                continue
            with anyio.CancelScope(deadline=deadline) as waiting:
                await self._returned.wait()
            if waiting.cancelled_caught:
                raise RequestTimeoutError(
                    f"all {self._max_connections} connections of the pool were in use for {seconds:g} s; "
                    "make max_connections larger, or return connections sooner",
                    server=config.name,
                    seconds=seconds,
                )

    def _has_room(self) -> bool:
        return self._max_connections is None or len(self._shared) < self._max_connections

    async def _made_room(self) -> bool:
        """Close the unused connection that was left first; return whether there was one."""
        first = next((identity for identity, shared in self._shared.items() if not shared.users), None)
        if first is not None:
            await self._end([first])
        return first is not None

    async def _evict(self) -> None:
        """Close unused connections: never opened, left too long ago, or the oldest beyond `max_idle`."""
        idle = [(identity, shared) for identity, shared in self._shared.items() if not shared.users]
        since = anyio.current_time() - self._idle_seconds
        # A hub without clients is a connection that failed to open. Kept, it would give the next user the same error
        # without a new attempt.
        alive = [identity for identity, shared in idle if shared.hub.clients and shared.left_at >= since]
        kept = set(alive[max(0, len(alive) - self._max_idle) :])
        await self._end([identity for identity, _ in idle if identity not in kept])

    async def _end(self, identities: list[_Identity]) -> None:
        # at once: no caller gets one that is being closed
        hubs = [self._shared.pop(identity).hub for identity in identities]
        if hubs:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as tasks:
                    for hub in hubs:
                        tasks.start_soon(hub.close)


def _on_behalf_of(config: ServerConfig, principal: str | None, scopes: Sequence[str]) -> ServerConfig:
    """Return the settings of a principal's own sign-in."""
    if principal is None:
        raise AuthRequiredError(
            "the caller has no identity to sign in with: serve with auth=, or lease without a principal",
            server=config.name,
        )
    if not principal and not scopes:
        return config
    oauth = config.auth.oauth if config.auth is not None else None
    if config.auth is None or oauth is None:
        raise ConfigError(
            "a principal needs 'auth' of type 'oauth': other credentials are the same for everybody",
            server=config.name,
            field="auth",
        )
    # As this principal, and no other caller.
    identity = "own" if principal else oauth.identity
    signed_in = oauth.replace(
        identity=identity, principal=principal or oauth.principal, scopes=tuple(scopes) or oauth.scopes
    )
    return config.replace(auth=config.auth.replace(oauth=signed_in))


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
