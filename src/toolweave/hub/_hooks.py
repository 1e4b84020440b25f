"""Event listeners over all present and future connections of a hub, and for the hub's warnings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from toolweave.connect._connection import McpConnection
from toolweave.connect._events import EventName, tell
from toolweave.tools._toolset import Unsubscribe

__all__ = ["HubEventName", "HubEvents"]

Listener = Callable[[McpConnection, Any], Any]
HubEventName = EventName | Literal["warning"]
"""The events of a hub: those of its connections, and new entries of `Hub.warnings`."""


class HubEvents:
    """The base class of `Hub` that forwards the events of its connections to listeners."""

    def __init__(self) -> None:
        self._clients: dict[str, McpConnection] = {}
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
        """Subscribe all listeners to one more connection."""
        for event, listener, unsubscribes in self._hooks.values():
            unsubscribes.append(_hooked(connection, event, listener))

    def _warned(self, server: str, text: str) -> None:
        """Notify the listeners of a warning about a server."""
        connection = self._clients.get(server)
        listeners = [listener for event, listener, _ in self._hooks.values() if event == "warning"]
        if connection is not None:
            tell([partial(listener, connection) for listener in listeners], text, server=server, what="warning")


def _hooked(connection: McpConnection, event: HubEventName, listener: Listener) -> Unsubscribe:
    if event == "warning":  # the hub's own
        return lambda: None
    return connection.on(event, lambda value: listener(connection, value))
