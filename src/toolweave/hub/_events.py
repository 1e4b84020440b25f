"""Events of a hub: listeners over all its present and future connections, and for its warnings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, overload

from toolweave.connect import ConnectionState, ListChanged, McpConnection, ResourceUpdated, Silent, StateChanged
from toolweave.connect._event_subscriptions import ListEvent, Notification, StateEvent
from toolweave.connect._events import EventName, notify_listeners
from toolweave.hub._starting import USABLE
from toolweave.tools import ToolsChanged, Unsubscribe

Listener = Callable[[McpConnection, Any], Any]
HubEventName = EventName | Literal["warning"]
"""The events of a hub: those of its connections, and new entries of `Hub.warnings`."""


class HubEventSubscriptions:
    """Base class of a hub: its listeners, which get the connection and a value of the event's type."""

    _events: HubEvents

    @overload
    def on(self, event: StateEvent, listener: Callable[[McpConnection, StateChanged], Any]) -> Unsubscribe: ...
    @overload
    def on(
        self, event: Literal["tools_changed"], listener: Callable[[McpConnection, ToolsChanged], Any]
    ) -> Unsubscribe: ...
    @overload
    def on(self, event: ListEvent, listener: Callable[[McpConnection, ListChanged], Any]) -> Unsubscribe: ...
    @overload
    def on(
        self, event: Literal["resource_updated"], listener: Callable[[McpConnection, ResourceUpdated], Any]
    ) -> Unsubscribe: ...
    @overload
    def on(self, event: Literal["error"], listener: Callable[[McpConnection, Exception], Any]) -> Unsubscribe: ...
    @overload
    def on(
        self, event: Literal["notification"], listener: Callable[[McpConnection, Notification], Any]
    ) -> Unsubscribe: ...
    @overload
    def on(
        self, event: Literal["problem", "warning"], listener: Callable[[McpConnection, str], Any]
    ) -> Unsubscribe: ...
    @overload
    def on(self, event: Literal["silence"], listener: Callable[[McpConnection, Silent], Any]) -> Unsubscribe: ...
    def on(self, event: HubEventName, listener: Callable[[McpConnection, Any], Any]) -> Unsubscribe:
        """Call `listener` with the connection and the event of every present and future server; return the unsubscribe.

        The events are those of `McpConnection.on`, and `"warning"`: a text that is new in `Hub.warnings`, such as a
        name that was taken. A list whose changes are listened to is kept up to date.
        """
        return self._events.on(event, listener)


class HubEvents:
    """The listeners of a hub, which get the events of each connection that they are attached to.

    Args:
        clients: The hub's connections by server name; a live view.
    """

    def __init__(self, clients: Mapping[str, McpConnection]) -> None:
        self._clients = clients
        self._hooks: dict[object, tuple[HubEventName, Listener, list[Unsubscribe]]] = {}

    def on(self, event: HubEventName, listener: Listener) -> Unsubscribe:
        """Add a listener; see `Hub.on`."""
        token = object()
        self._hooks[token] = (event, listener, [_hooked(one, event, listener) for one in self._clients.values()])

        def remove() -> None:
            _, _, unsubscribes = self._hooks.pop(token, (event, listener, []))
            for unsubscribe in unsubscribes:
                unsubscribe()

        return remove

    def attach(self, connection: McpConnection) -> None:
        """Subscribe all listeners to one more connection; those of states are called for one that is open already."""
        for event, listener, unsubscribes in self._hooks.values():
            unsubscribes.append(_hooked(connection, event, listener))
        if connection.state in USABLE:
            state = connection.state
            before = ConnectionState.CONNECTING
            change = StateChanged(server=connection.name, state=state, previous=before, error=connection.error)
            notify_listeners(self._of(connection, "state"), change, server=connection.name, what="state")

    def warn(self, server: str, text: str) -> None:
        """Notify the listeners of a warning about a server."""
        connection = self._clients.get(server)
        if connection is not None:
            notify_listeners(self._of(connection, "warning"), text, server=server, what="warning")

    def _of(self, connection: McpConnection, wanted: HubEventName) -> list[Callable[[Any], Any]]:
        """Return the listeners of an event, which are still to be given it."""
        return [partial(listener, connection) for event, listener, _ in self._hooks.values() if event == wanted]


def _hooked(connection: McpConnection, event: HubEventName, listener: Listener) -> Unsubscribe:
    if event == "warning":  # the hub's own
        return lambda: None
    return connection.on(event, lambda value: listener(connection, value))
