"""Who listens to a connection. A listener that raises is logged and costs nobody else the event."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal, get_args

__all__ = ["EventName", "Events"]

_log = logging.getLogger("toolweave.connect")

EventName = Literal["state", "tools_changed", "closed", "error", "notification"]
"""The events of a connection."""


class Events:
    """The listeners of one connection, by event."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._listeners: dict[str, list[Callable[[Any], Any]]] = {}

    def add(self, event: EventName, listener: Callable[[Any], Any]) -> Callable[[], None]:
        """Add a listener and return what removes it.

        Raises:
            ValueError: There is no such event.
        """
        if event not in get_args(EventName):
            raise ValueError(f"no event {event!r}; there are {', '.join(get_args(EventName))}")
        listeners = self._listeners.setdefault(event, [])
        listeners.append(listener)

        def remove() -> None:
            if listener in listeners:
                listeners.remove(listener)

        return remove

    def emit(self, event: EventName, value: Any) -> None:
        """Call the listeners of an event, synchronously and in the order they came."""
        for listener in tuple(self._listeners.get(event, ())):
            try:
                listener(value)
            except Exception:  # boundary: user code
                _log.exception("server %r: a listener of %r raised", self._server, event)
