"""The event listeners of a connection. A listener that raises is logged and does not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args

_log = logging.getLogger("toolweave.connect")

EventName = Literal[
    "state",
    "tools_changed",
    "prompts_changed",
    "resources_changed",
    "resource_updated",
    "closed",
    "error",
    "notification",
    "problem",
    "silence",
]
"""The events of a connection."""


class EventListeners:
    """The listeners of one connection, by event.

    Attributes:
        on_added: Called with the event after a listener was added.
    """

    def __init__(self, server: str) -> None:
        self.on_added: Callable[[EventName], None] = lambda event: None
        self._server = server
        self._listeners: dict[str, dict[object, Callable[[Any], Any]]] = {}

    def add(self, event: EventName, listener: Callable[[Any], Any]) -> Callable[[], None]:
        """Add a listener and return its unsubscribe.

        Raises:
            ValueError: The event does not exist.
        """
        if event not in get_args(EventName):
            raise ValueError(f"no event {event!r}; there are {', '.join(get_args(EventName))}")
        listeners = self._listeners.setdefault(event, {})
        token = object()  # the same listener may be added twice
        listeners[token] = listener

        def remove() -> None:
            listeners.pop(token, None)

        self.on_added(event)
        return remove

    def has_listeners(self, event: EventName) -> bool:
        """Whether an event has a listener."""
        return bool(self._listeners.get(event))

    def emit(self, event: EventName, value: Any) -> None:
        """Call the listeners of an event, synchronously and in the order they came."""
        if listeners := self._listeners.get(event):
            notify_listeners(tuple(listeners.values()), value, server=self._server, what=event)


def notify_listeners(listeners: Iterable[Callable[[Any], Any]], value: Any, *, server: str, what: str) -> None:
    """Call each listener with a value; one that raises is logged and does not stop the others."""
    for listener in listeners:
        try:
            listener(value)
        except Exception:  # boundary: user code; SystemExit and KeyboardInterrupt pass
            _log.exception("server %r: a listener of %r raised", server, what)
