"""Listeners to the events of all connections of a hub, those included that come later. Knows nothing of the events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolweave.connect.connection import McpConnection
from toolweave.connect.events import EventName
from toolweave.tools.toolset import Unsubscribe

__all__ = ["Hooks"]

Listener = Callable[[McpConnection, Any], Any]


class Hooks:
    """The part of a hub that passes the events of its connections on; `Hub` adds the rest."""

    def __init__(self) -> None:
        self._clients: dict[str, McpConnection] = {}
        self._hooks: dict[object, tuple[EventName, Listener, list[Unsubscribe]]] = {}

    def on(self, event: EventName, listener: Listener) -> Unsubscribe:
        """Call `listener` with the connection and the event of every server, now and later; returns what ends that.

        The events are those of `McpConnection.on`. A list whose changes are listened to is kept up to date.
        """
        token = object()
        self._hooks[token] = (event, listener, [_hooked(one, event, listener) for one in self._clients.values()])

        def remove() -> None:
            _, _, unsubscribes = self._hooks.pop(token, (event, listener, []))
            for unsubscribe in unsubscribes:
                unsubscribe()

        return remove

    def _hook(self, connection: McpConnection) -> None:
        """Let everybody who listens hear of one more connection."""
        for event, listener, unsubscribes in self._hooks.values():
            unsubscribes.append(_hooked(connection, event, listener))


def _hooked(connection: McpConnection, event: EventName, listener: Listener) -> Unsubscribe:
    return connection.on(event, lambda value: listener(connection, value))
