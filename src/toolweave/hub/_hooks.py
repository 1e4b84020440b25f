"""Event listeners over all present and future connections of a hub, and for the hub's warnings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from toolweave.connect._connection import McpConnection
from toolweave.connect._events import EventName, tell
from toolweave.connect._state import ConnectionState, StateChanged
from toolweave.tools._toolset import Unsubscribe

Listener = Callable[[McpConnection, Any], Any]
HubEventName = EventName | Literal["warning"]
"""The events of a hub: those of its connections, and new entries of `Hub.warnings`."""
_USABLE = frozenset({ConnectionState.READY, ConnectionState.DEGRADED})


class HubEvents:
    """The base class of `Hub` that forwards the events of its connections to listeners."""

    def __init__(self) -> None:
        self._clients: dict[str, McpConnection] = {}
        self._clients_shown: Mapping[str, McpConnection] = MappingProxyType(self._clients)
        self._hooks: dict[object, tuple[HubEventName, Listener, list[Unsubscribe]]] = {}

    def on(self, event: HubEventName, listener: Listener) -> Unsubscribe:
        """Call `listener` with the connection and the event of every present and future server; return the unsubscribe.

        The events are those of `McpConnection.on`, and `"warning"`: a text that is new in `Hub.warnings`, such as a
        name that was taken. A list whose changes are listened to is kept up to date.
        """
        token = object()
        self._hooks[token] = (event, listener, [_hooked(one, event, listener) for one in self._clients.values()])

        def remove() -> None:
            _, _, unsubscribes = self._hooks.pop(token, (event, listener, []))
            for unsubscribe in unsubscribes:
                unsubscribe()

        return remove

    def _hook(self, connection: McpConnection) -> None:
        """Subscribe all listeners to one more connection; those of states are called for one that is open already."""
        for event, listener, unsubscribes in self._hooks.values():
            unsubscribes.append(_hooked(connection, event, listener))
        if connection.state in _USABLE:
            state, before = connection.state, ConnectionState.CONNECTING
            change = StateChanged(server=connection.name, state=state, previous=before, error=connection.error)
            tell(self._of(connection, "state"), change, server=connection.name, what="state")

    def _warned(self, server: str, text: str) -> None:
        """Notify the listeners of a warning about a server."""
        connection = self._clients.get(server)
        if connection is not None:
            tell(self._of(connection, "warning"), text, server=server, what="warning")

    def _of(self, connection: McpConnection, wanted: HubEventName) -> list[Callable[[Any], Any]]:
        """Return the listeners of an event, which are still to be given it."""
        return [partial(listener, connection) for event, listener, _ in self._hooks.values() if event == wanted]


def _hooked(connection: McpConnection, event: HubEventName, listener: Listener) -> Unsubscribe:
    if event == "warning":  # the hub's own
        return lambda: None
    return connection.on(event, lambda value: listener(connection, value))
