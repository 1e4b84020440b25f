"""Stored events of legacy streams, for clients that resume them with `Last-Event-ID` (SEP-1699).

The SDK numbers the streams of each session alike and uses one store for all of them. This module keeps them apart: a
session gets back its own events only. The revision 2026-07-28 has nothing to replay.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["EventStore", "MemoryEventStore", "SessionEvents", "StoredEvent"]


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One message of a stream, with its event id."""

    message: Any  # the SDK's JSON-RPC message
    event_id: str | None = None


class EventStore(Protocol):
    """Stores events; has the interface of the SDK's `EventStore`, so that stores written for it fit."""

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Store a message (None: only a point to resume from) and return its event id."""
        ...

    async def replay_events_after(
        self, last_event_id: str, send_callback: Callable[[Any], Awaitable[None]]
    ) -> str | None:
        """Send the messages of the same stream after an event; return the stream's id, None for an unknown event."""
        ...


class MemoryEventStore:
    """Keeps the newest events of all streams in this process.

    Args:
        size: Maximum number of events; the oldest are dropped first.
    """

    def __init__(self, size: int = 10_000) -> None:
        self._events: OrderedDict[str, tuple[str, Any]] = OrderedDict()
        self._size = size
        self._number = 0

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Store a message and return its event id."""
        self._number += 1
        event_id = str(self._number)
        self._events[event_id] = (stream_id, message)
        if len(self._events) > self._size:
            self._events.popitem(last=False)
        return event_id

    async def replay_events_after(
        self, last_event_id: str, send_callback: Callable[[Any], Awaitable[None]]
    ) -> str | None:
        """Send the messages of the same stream after an event."""
        if last_event_id not in self._events:
            return None
        stream = self._events[last_event_id][0]
        after = int(last_event_id)
        for event_id, (of, message) in list(self._events.items()):
            if of == stream and message is not None and int(event_id) > after:
                await send_callback(StoredEvent(message, event_id))
        return stream


_asking: ContextVar[str] = ContextVar("toolweave_asking_session", default="")


class SessionEvents:
    """An event store that keeps the events of sessions apart.

    Args:
        store: The shared event store.
        most: Maximum number of session ids; the least recently used are forgotten first.
    """

    def __init__(self, store: EventStore, most: int = 10_000) -> None:
        self._store = store
        self._most = most
        self._names: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def enter(self, session_id: str | None) -> str:
        """Set the session of the current task, None for a new one; return its internal name."""
        name = self._names.get(session_id, ("", ""))[0] if session_id is not None else secrets.token_hex(8)
        if session_id is not None and name:
            self._names.move_to_end(session_id)
        _asking.set(name)
        return name

    def agreed(self, session_id: str) -> str:
        """Return the negotiated revision of a session; "" when the session is unknown."""
        return self._names.get(session_id, ("", ""))[1]

    def know(self, session_id: str, name: str, version: str) -> None:
        """Remember a session's id and its negotiated revision."""
        self._names[session_id] = name, version
        if len(self._names) > self._most:
            self._names.popitem(last=False)

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Store a message of the current session."""
        name = _asking.get()
        return f"{name}.{await self._store.store_event(f'{name}.{stream_id}', message)}"

    async def replay_events_after(
        self, last_event_id: str, send_callback: Callable[[Any], Awaitable[None]]
    ) -> str | None:
        """Send the messages after an event, if it is one of the current session."""
        name = _asking.get()
        if not name or not last_event_id.startswith(f"{name}."):
            return None

        async def sending(event: Any) -> None:
            told = dataclasses.replace(event, event_id=f"{name}.{event.event_id}")
            await send_callback(told)

        stream = await self._store.replay_events_after(last_event_id.removeprefix(f"{name}."), sending)
        return None if stream is None else stream.removeprefix(f"{name}.")
