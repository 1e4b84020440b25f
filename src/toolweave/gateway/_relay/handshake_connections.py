"""Connections in the handshake era to upstreams that speak both eras, for the callers of that era.

A server of both eras may have features that work in one of them alone: tools that send requests to their client, errors
and notifications that the other era lacks. Callers of handshake revisions therefore reach such a server on a connection
of their era, and modern callers on the one of the hub. Only a server of one era is translated. Over stdio such a
connection is another process, and its lists are those that callers with a handshake see.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import anyio
import msgspec

from toolweave.connect import Callbacks, ConnectionState, McpConnection
from toolweave.errors import AuthRequiredError, ConnectError, ConnectionLostError, ServerError
from toolweave.hub._starting import USABLE
from toolweave.protocol.logs import LogLevel
from toolweave.protocol.subscriptions import LIST_CHANGED
from toolweave.protocol.versions import MODERN_VERSIONS
from toolweave.tools.toolset import ChangeListeners

_log = logging.getLogger("toolweave.gateway")

OnServerNotification: TypeAlias = Callable[[str, tuple[str, Mapping[str, Any]]], None]
"""Takes the name of a server, and a notification of it: method and params."""

HANDSHAKE = "legacy"
"""The setting `protocol` of these connections."""
_OPEN_SECONDS = 10.0
"""Seconds that a request waits for such a connection; then it is translated."""
_SWEEP_SECONDS = 1.0
_PASSING = frozenset({401, 403, 408, 425, 429})
"""The statuses of HTTP by which a server refuses one request, and not an era."""


class AnnouncedChange(NamedTuple):
    """A change of a connection or its lists.

    Attributes:
        method: The notification by which the server announced it, or None.
    """

    method: str | None


UNANNOUNCED = AnnouncedChange(None)
"""A change of the state of a connection, or of its tools."""


class _Sibling(msgspec.Struct, eq=False):
    """The handshake era of one upstream, as far as it was tried.

    Attributes:
        connection: The connection in that era, or None if the server does not speak it.
        restarts: How often the connection of the hub had been restarted by then: another server may answer since.
    """

    connection: McpConnection | None
    restarts: int


class HandshakeConnections:
    """One connection for each upstream of both eras, opened when a caller of the handshake era first needs it.

    These callers share it as modern callers share the one of the hub; a caller that can be asked has connections of its
    own. Whether a server speaks the handshake era is only known by its answer to `initialize`: servers of both eras
    name none but the modern revisions in `server/discover`. A refusal holds until the connection of the hub restarts.
    That a server cannot be reached in that era is not a refusal; the connection itself decides when to try again.

    Attributes:
        log_level: The minimum severity of log messages that connections ask for when they are made, or None.
        on_notification: Called with the server and each of its notifications on these connections, or None.
    """

    def __init__(self) -> None:
        self._siblings: dict[McpConnection, _Sibling] = {}
        self._past_restarts: Counter[str] = Counter()
        self._listeners = ChangeListeners[AnnouncedChange]()
        self.log_level: LogLevel | None = None
        self.on_notification: OnServerNotification | None = None

    def __iter__(self) -> Iterator[McpConnection]:
        return (one.connection for one in self._siblings.values() if one.connection is not None)

    def listen(self, listener: Callable[[AnnouncedChange], None]) -> Callable[[], None]:
        """Call `listener` after each change of these connections or their lists; return the end of that."""
        return self._listeners.subscribe(listener)

    def restarts(self, server: str) -> int:
        """Return the number of reconnections of these connections to a server, closed ones included."""
        return self._past_restarts[server] + sum(one.restarts for one in self if one.name == server)

    def may_speak(self, shared: McpConnection) -> bool:
        """Whether an upstream is modern, as far as the hub is concerned, and may also speak the handshake era."""
        if shared.config.protocol != "auto" or shared.protocol_version not in MODERN_VERSIONS:
            return False
        if shared.state not in USABLE:  # the same server is away, or was removed
            return False
        # A refusal is kept with the restarts of the hub's connection: after another one, the server may have been
        # replaced by a version that speaks both eras.
        sibling = self._siblings.get(shared)
        return sibling is None or sibling.connection is not None or sibling.restarts != shared.restarts

    def known(self, shared: McpConnection) -> McpConnection | None:
        """Return the open connection in the handshake era to the upstream of a connection of the hub, or None."""
        sibling = self._siblings.get(shared)
        if sibling is None or sibling.connection is None or shared.state is ConnectionState.CLOSED:
            return None
        if sibling.connection.state in USABLE:
            return sibling.connection
        return None

    def for_plain_calls(self, shared: McpConnection) -> McpConnection | None:
        """Return the connection for calls of handshake callers; None while it is not known whether there is another."""
        return self.known(shared) or (None if self.may_speak(shared) else shared)

    def refused(self, shared: McpConnection) -> None:
        """Note that an upstream does not speak the handshake era."""
        self._siblings[shared] = _Sibling(None, shared.restarts)

    async def opened(self, shared: McpConnection) -> McpConnection | None:
        """Return the open connection in the handshake era to an upstream; None if it has none, or not in time."""
        if not self.may_speak(shared):
            return None
        sibling = self._siblings.get(shared)
        if sibling is None or sibling.connection is None:
            sibling = self._siblings[shared] = _Sibling(self._made(shared), shared.restarts)
        connection = sibling.connection
        assert connection is not None
        # in the background, so that a request that is cancelled does not close it for others
        connection.start()
        try:
            with anyio.move_on_after(_OPEN_SECONDS):
                await connection.gateway_side.agreement()
                return connection
        except ServerError as error:
            if refuses_handshake(error):
                _log.info("%s; its handshake callers are translated to its own era", error)
                await self._forget(shared, sibling)
            else:
                _log.warning("%s; its handshake callers are translated to the other era meanwhile", error)
        return None

    async def forget(self, shared: McpConnection) -> None:
        """Note that an upstream does not speak the handshake era any more, and close the connection in that era."""
        # Noted before the connection is closed, which awaits: no request opens another one meanwhile.
        sibling = self._siblings.get(shared)
        self.refused(shared)
        if sibling is not None:
            await self._close(sibling)

    async def _forget(self, shared: McpConnection, sibling: _Sibling) -> None:
        """Close a connection whose handshake was refused, and do not try again."""
        # Several requests may have waited for one handshake. Each gets the refusal; the first one closes, and a later
        # one must not close the connection that was opened after it.
        if self._siblings.get(shared) is sibling:
            await self.forget(shared)

    def _made(self, shared: McpConnection) -> McpConnection:
        callbacks = Callbacks(log_level=self.log_level)
        connection = McpConnection(shared.config.replace(protocol=HANDSHAKE), callbacks=callbacks)
        if shared.config.transport != "stdio":  # a process has its own lists
            report_list_changes(connection, shared)
        watch_lists(connection, self._listeners.emit)
        if self.on_notification is not None:
            connection.on("notification", partial(self.on_notification, shared.name))
        return connection

    async def _close(self, sibling: _Sibling) -> None:
        if sibling.connection is not None:
            self._past_restarts[sibling.connection.name] += sibling.connection.restarts
            with anyio.CancelScope(shield=True):  # bounded by the server's own time for closing
                await sibling.connection.close()

    async def sweep(self) -> None:
        """Close the connections to upstreams that are gone, until cancelled."""
        while True:
            await anyio.sleep(_SWEEP_SECONDS)
            for shared in [one for one in self._siblings if one.state is ConnectionState.CLOSED]:
                await self._close(self._siblings.pop(shared))

    async def close(self) -> None:
        """Close all of them."""
        # Replaced before the first await, so that a connection that is opened meanwhile is not in the list that is
        # being closed, and the list does not change while it is read.
        siblings = self._siblings
        self._siblings = {}
        async with anyio.create_task_group() as tasks:
            for sibling in siblings.values():
                tasks.start_soon(self._close, sibling)


def refuses_handshake(error: ServerError) -> bool:
    """Whether an error says that a server answered the handshake, and that it does not speak that era.

    A server that is away, busy, or wants credentials says nothing about it.
    """
    if not isinstance(error, ConnectError) or isinstance(error, AuthRequiredError):
        return False
    if error.code is not None:
        return True
    status = error.status
    if status is None or status in _PASSING:
        return False
    return 400 <= status < 500


def is_unsent(error: ServerError) -> bool:
    """Whether a request was certainly not carried out, because its connection was lost before."""
    if isinstance(error, ConnectionLostError):
        return not error.sent
    return False


def watch_lists(connection: McpConnection, changed: Callable[[AnnouncedChange], None]) -> None:
    """Report changes of the lists of a connection: by its state, its tools, or an announcement of its server.

    Args:
        connection: The connection.
        changed: Called after each change.
    """

    def note(notification: tuple[str, Mapping[str, Any]]) -> None:
        if notification[0] in LIST_CHANGED.values():
            changed(AnnouncedChange(notification[0]))

    connection.on("state", lambda change: changed(UNANNOUNCED))
    connection.on("notification", note)
    connection.subscribe(lambda change: changed(UNANNOUNCED))


def report_list_changes(connection: McpConnection, shared: McpConnection) -> None:
    """Have the connection of the hub read a list again whenever the server reports its change on another connection."""

    def note(notification: tuple[str, Mapping[str, Any]]) -> None:
        if notification[0] in LIST_CHANGED.values():
            shared.gateway_side.note_notification(*notification)

    connection.on("notification", note)
