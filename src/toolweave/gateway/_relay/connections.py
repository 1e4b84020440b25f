"""Connections to legacy upstreams on behalf of one caller, whose capabilities they declare.

A legacy server learns at its handshake what its client can be asked, and over stdio, or on a session's own stream, its
questions do not name the call they belong to. So a caller who can answer gets its own connections, each for one call
at a time: every message on it belongs to that call. Callers who can answer nothing share the connection of the hub.

The oldest connection of a caller to a server is its first one. The lists of that connection are what the caller sees of
the server, and its subscriptions are made there, for as long as the connection is usable.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, NamedTuple

import anyio
import msgspec

from toolweave.config import ServerConfig
from toolweave.connect import ConnectionState, McpConnection
from toolweave.connect._client_features.callbacks import AnswerRequest, ClientStandIn
from toolweave.errors import ErrorKind, RequestError, ServerError, ToolError, printable
from toolweave.gateway._relay.handshake_connections import (
    AnnouncedChange,
    OnServerNotification,
    report_list_changes,
    watch_lists,
)
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.logs import LogLevel
from toolweave.protocol.tasks import related_task
from toolweave.serve import Client
from toolweave.serve.request import Json
from toolweave.tools.toolset import ChangeListeners

_log = logging.getLogger("toolweave.gateway")
_SWEEP_SECONDS = 1.0
_NOTIFY_SECONDS = 5.0
_OVER = frozenset({ConnectionState.FAILED, ConnectionState.AUTH_REQUIRED, ConnectionState.CLOSED})


class Owner(NamedTuple):
    """A caller that has its own connections.

    Attributes:
        caller: Its key; see `Client.key`.
        modern: Whether it is of the modern era.
        capabilities: Its capabilities as JSON: requests of one principal may declare different ones.
    """

    caller: str
    modern: bool
    capabilities: bytes


def owner_of(client: Client) -> Owner | None:
    """Return the caller of a request as an owner of connections; None if it cannot be distinguished from others."""
    if client.key is None:
        return None
    return Owner(client.key, client.modern, msgspec.json.encode(client.capabilities, order="deterministic"))


class OwnerChange(NamedTuple):
    """A change of the connections of one caller, or of their lists.

    Attributes:
        owner: The caller.
        method: The notification by which a server announced it, or None.
    """

    owner: Owner
    method: str | None = None


class AskingConnection:
    """A connection that carries one call at a time; all that its server asks is asked for that call.

    Attributes:
        config: The server, as the hub connects to it.
        owner: The caller, if it can be distinguished from others.
        id: Its name among all of them, which ids of tasks carry.
        principal: The principal of the caller, or None.
        connection: The connection, which asks for no revision but the one that the hub has found out.
        handler: Gets the requests of the server while a call runs; None between calls.
        level: The minimum severity of log messages that was asked for, or None.
        running: Whether a call runs.
        users: The number of subscriptions and requests beside that call, for which it is kept.
        since: The time at which the last call ended.
        tasks_until: The time until which it is kept for the tasks that began on it.
    """

    def __init__(
        self,
        config: ServerConfig,
        version: str,
        capabilities: Mapping[str, Any],
        owner: Owner | None = None,
        *,
        principal: str | None = None,
    ) -> None:
        self.config = config
        self.owner = owner
        self.id: str = secrets.token_urlsafe(12)
        self.principal = principal
        stand_in = ClientStandIn(capabilities=capabilities, answer=self._answer)
        self.connection: McpConnection = McpConnection(config.replace(protocol=version), stand_in=stand_in)
        self.handler: AnswerRequest | None = None
        self.level: LogLevel | None = None
        self.running = False
        self.users: int = 0
        self.since: float = 0.0
        self.tasks_until: float = -math.inf
        self._of_tasks: dict[str, AnswerRequest] = {}

    @property
    def kept(self) -> bool:
        """Whether a subscription, a request or a task needs it, although no call runs."""
        return self.users > 0 or self.tasks_until > anyio.current_time()

    @contextmanager
    def used(self) -> Generator[None]:
        """Keep the connection for a request about which its server asks nothing, while a call may run on it."""
        self.users += 1
        try:
            yield
        finally:
            self.users -= 1
            self.since = anyio.current_time()

    @contextmanager
    def answering(self, task: str, handler: AnswerRequest) -> Generator[None]:
        """Answer the questions that name a task of the server by `handler` for the block."""
        self._of_tasks[task] = handler
        try:
            yield
        finally:
            if self._of_tasks.get(task) is handler:
                del self._of_tasks[task]

    async def _answer(self, method: str, params: Mapping[str, Any]) -> Json:
        of_task = self._of_tasks.get(related_task(params) or "")
        if of_task is not None:
            return await of_task(method, params)
        if self.handler is None:
            name = self.connection.name
            _log.warning(
                "server %r: its request %r was refused: no call of a caller runs that it could be for",
                *(name, printable(method[:100])),
            )
            raise RequestError("no request is running on whose behalf this could be asked", code=INTERNAL_ERROR)
        return await self.handler(method, params)


class _Key(NamedTuple):
    """The connections that are alike.

    Attributes:
        server: The server.
        version: The revision.
        capabilities: The capabilities as JSON.
        caller: The caller; None for one that cannot be distinguished from others.
        named: Whether the principal of the caller is known.
    """

    server: str
    version: str
    capabilities: bytes
    caller: str | None
    named: bool


class AskingConnections:
    """The pool of these connections.

    Args:
        max_connections: Maximum number of connections; each may be a process.
        max_per_caller: Maximum number for one caller, server and set of capabilities.
        max_unnamed: Maximum number of processes of one server for all callers together whose principal is not known:
            these may make up as many callers as they like.
        idle_seconds: Seconds without a call after which a connection is closed.

    Attributes:
        idle_seconds: Seconds without a call after which a connection is closed.
        on_notification: Called with the server and each of its notifications on these connections, or None.
    """

    def __init__(
        self,
        *,
        max_connections: int = 128,
        max_per_caller: int = 16,
        max_unnamed: int = 32,
        idle_seconds: float = 300.0,
    ) -> None:
        self._max_connections = max_connections
        self._max_per_caller = max_per_caller
        self._max_unnamed = max_unnamed
        self.idle_seconds = idle_seconds
        self._pool: dict[_Key, list[AskingConnection]] = {}
        self._owned: dict[Owner, list[AskingConnection]] = {}
        self._past_restarts: Counter[str] = Counter()
        self._listeners = ChangeListeners[OwnerChange]()
        self._freed = anyio.Event()
        self.on_notification: OnServerNotification | None = None

    def __iter__(self) -> Iterator[McpConnection]:
        return (one.connection for there in self._pool.values() for one in there)

    def __len__(self) -> int:
        return sum(map(len, self._pool.values()))

    # the first connections of callers

    def is_owner(self, owner: Owner | None) -> bool:
        """Whether a caller has its own connections."""
        return owner in self._owned

    def first(self, owner: Owner | None, config: ServerConfig) -> AskingConnection | None:
        """Return the oldest connection of a caller to a server that has not ended, or None."""
        owned = () if owner is None else self._owned.get(owner, ())
        return next((one for one in owned if one.config is config and one.connection.state not in _OVER), None)

    def first_of(self, client: Client, config: ServerConfig) -> AskingConnection | None:
        """Return the first connection of the caller of a request to a server, or None."""
        if self._owned:
            return self.first(owner_of(client), config)
        return None

    def find(self, place: str, client: Client) -> AskingConnection | None:
        """Return the connection of this id, if it is one of the caller of a request and has not ended.

        A principal that comes back in another session has other connections, and still reaches those it had.
        """
        owned = (one for ones in self._owned.values() for one in ones if one.id == place)
        found = next((one for one in owned if one.connection.state not in _OVER), None)
        if found is not None and _is_of(found, client):
            return found
        return None

    def listen(self, listener: Callable[[OwnerChange], None]) -> Callable[[], None]:
        """Call `listener` after each change of the connections of a caller; return the end of that."""
        return self._listeners.subscribe(listener)

    def hold(self, connections: Iterable[McpConnection]) -> Callable[[], None]:
        """Keep those of these connections that are in the pool from being idle; return the end of that."""
        wanted = set(map(id, connections))
        held = [one for owned in self._owned.values() for one in owned if id(one.connection) in wanted]
        for one in held:
            one.users += 1

        def end() -> None:
            while held:
                one = held.pop()
                one.users -= 1
                one.since = anyio.current_time()

        return end

    def restarts(self, server: str) -> int:
        """Return the number of reconnections of all connections to a server, closed ones included."""
        there = (one.connection.restarts for key, ones in self._pool.items() if key.server == server for one in ones)
        return self._past_restarts[server] + sum(there)

    def _note_change(self, owner: Owner, change: AnnouncedChange) -> None:
        self._listeners.emit(OwnerChange(owner, change.method))

    # leases

    @asynccontextmanager
    async def lease(
        self,
        config: ServerConfig,
        version: str,
        capabilities: Mapping[str, Any],
        caller: str | None,
        *,
        principal: str | None = None,
        owner: Owner | None = None,
        first_only: bool = False,
        shared: McpConnection | None = None,
    ) -> AsyncGenerator[AskingConnection]:
        """Return an open connection for one call, which may wait for those of others to end.

        One caller's calls that follow one another get the same connection, and so the same server process. A caller
        that cannot be distinguished from others gets a used one only if its last call was answered.

        Args:
            config: The server, as the hub connects to it.
            version: The revision to speak, or `"legacy"` for the newest with a handshake.
            capabilities: The capabilities of the caller.
            caller: A key that identifies the caller, or None.
            principal: Its principal, or None.
            owner: The caller, whose lists are those of its first connection; None for one that is like others.
            first_only: Whether only the first connection will do, because no other process has its subject.
            shared: The connection of the hub, which is notified of changed lists unless the new one has a process of
                its own.

        Raises:
            ToolError: None was free in time; the call was not sent.
            ServerError: The server cannot be reached.
        """
        encoded = msgspec.json.encode(capabilities, order="deterministic")
        key = _Key(config.name, version, encoded, caller, principal is not None)

        def make() -> AskingConnection:
            return self._add(key, AskingConnection(config, version, capabilities, owner, principal=principal), shared)

        # One call at a time on each connection: a legacy server does not say which call a question is for, so a
        # question that arrives here can only be for the call that has the lease.
        asking = await self._taken(key, make, config, first_only)
        answered = False
        try:
            await asking.connection.open()
            yield asking
            answered = True
        except Exception:  # the call has failed, and is over
            answered = asking.connection.state not in _OVER
            raise
        finally:
            # The call of an unknown caller that was cancelled may still run at the server, and ask something later:
            # the next caller, who may be another person, must not get that question.
            asking.handler = None
            if asking.connection.state in _OVER or not (answered or caller is not None):
                await self._drop(key, asking)
            asking.running, asking.since = False, anyio.current_time()
            self._notify_freed()

    async def _taken(
        self, key: _Key, make: Callable[[], AskingConnection], config: ServerConfig, first_only: bool
    ) -> AskingConnection:
        seconds = config.timeout.call
        with anyio.move_on_after(seconds):
            while True:
                # Found and marked without an await in between, so no other waiting task gets the same connection. All
                # who wait are woken by each release and look again; the time limit above bounds them.
                found = self._free(key, make, config, first_only)
                if found is not None:
                    found.running = True
                    return found
                crowd = self._crowd(key, config)
                if crowd is not None and await self._drop_idle(crowd):
                    continue
                await self._freed.wait()
        raise ToolError(
            f"the call was not sent to server {config.name!r}: every connection for callers that can be asked was in "
            f"use for {seconds:g} s",
            kind=ErrorKind.NOT_SENT,
            retryable=True,
        )

    def _free(
        self, key: _Key, make: Callable[[], AskingConnection], config: ServerConfig, first_only: bool
    ) -> AskingConnection | None:
        """Return a connection that carries no call, a new one where there may be one more, or None."""
        there = [asking for asking in self._pool.get(key, []) if asking.config is config]
        if first_only and there:
            if there[0].running:
                return None
            return there[0]
        for asking in there:
            if not asking.running:
                return asking
        full = key.caller is not None and len(self._pool.get(key, [])) >= self._max_per_caller
        if full or self._crowd(key, config) is not None:
            return None
        return make()

    def _add(self, key: _Key, made: AskingConnection, shared: McpConnection | None) -> AskingConnection:
        """Put a new connection into the pool."""
        if self.on_notification is not None:
            made.connection.on("notification", partial(self.on_notification, key.server))
        # a process has its own lists
        if shared is not None and made.config.transport != "stdio":
            report_list_changes(made.connection, shared)
        self._pool.setdefault(key, []).append(made)
        if made.owner is not None:
            self._owned.setdefault(made.owner, []).append(made)
            watch_lists(made.connection, partial(self._note_change, made.owner))
        return made

    def _crowd(self, key: _Key, config: ServerConfig) -> Sequence[tuple[_Key, AskingConnection]] | None:
        """Return the connections that leave no room for one more; None where there is room."""
        everybody = [(of, one) for of, there in self._pool.items() for one in there]
        if len(everybody) >= self._max_connections:
            return everybody
        if key.named or config.transport != "stdio":
            return None
        unnamed = [(of, one) for of, one in everybody if not of.named and of.server == key.server]
        if len(unnamed) >= self._max_unnamed:
            return unnamed
        return None

    async def _drop_idle(self, crowd: Sequence[tuple[_Key, AskingConnection]]) -> bool:
        """Close the connection of these that has been idle for longest; False when all are in use.

        One that a subscription or a task needs is closed only if no other one can be closed.
        """
        idle = [(one.kept, one.since, key, one) for key, one in crowd if not one.running]
        if not idle:
            return False
        _, _, key, asking = min(idle, key=lambda item: item[:2])
        await self._drop(key, asking)
        return True

    async def _drop(self, key: _Key, asking: AskingConnection) -> None:
        # Out of the pool before it is closed, which awaits: no lease gets a closing connection. It may be out already,
        # since a lease that fails and a sweep can both drop it; its restarts are then counted once.
        there = self._pool.get(key, [])
        if asking in there:
            there.remove(asking)
            self._past_restarts[key.server] += asking.connection.restarts
        if not there:
            self._pool.pop(key, None)
        self._disown(asking)
        with anyio.CancelScope(shield=True):  # bounded by the server's own time for closing
            await asking.connection.close()

    def _disown(self, asking: AskingConnection) -> None:
        """Let another connection be the first one of its caller; its lists are those of the caller no more."""
        if asking.owner is None:
            owned = []
        else:
            owned = self._owned.get(asking.owner, [])
        if asking.owner is None or asking not in owned:
            return
        owned.remove(asking)
        if not owned:
            del self._owned[asking.owner]
        self._listeners.emit(OwnerChange(asking.owner))

    async def note_roots_changed(self, caller: str) -> None:
        """Notify the servers on all connections of a caller that its roots have changed; one that cannot is logged."""
        for key, there in list(self._pool.items()):
            for asking in there if key.caller == caller else ():
                try:
                    with anyio.move_on_after(_NOTIFY_SECONDS):
                        await asking.connection.roots_changed()
                except ServerError as error:
                    _log.warning("%s; it was not notified of changed roots", error)

    def _notify_freed(self) -> None:
        event = self._freed
        self._freed = anyio.Event()
        event.set()

    async def sweep(self, is_current: Callable[[ServerConfig], bool]) -> None:
        """Close connections that are idle for too long, or to servers that are gone, until cancelled.

        Args:
            is_current: Whether a server is still there, with this config.
        """
        while True:
            await anyio.sleep(min(self.idle_seconds / 4, _SWEEP_SECONDS))
            too_old = anyio.current_time() - self.idle_seconds
            old = [(key, one) for key, there in self._pool.items() for one in there if not one.running]
            for key, asking in old:
                idle = asking.since <= too_old and not asking.kept
                over = idle or not is_current(asking.config)
                if over and not asking.running:
                    asking.running = True  # reserves it meanwhile
                    await self._drop(key, asking)
            if old:
                self._notify_freed()

    async def close(self) -> None:
        """Close all of them."""
        async with anyio.create_task_group() as tasks:
            for key, there in list(self._pool.items()):
                for asking in list(there):
                    tasks.start_soon(self._drop, key, asking)


def _is_of(asking: AskingConnection, client: Client) -> bool:
    """Whether a connection is one of the caller of a request."""
    if asking.principal is not None or client.principal is not None:
        return asking.principal == client.principal
    if asking.owner is None or client.key is None:
        return False
    return asking.owner.caller == client.key
