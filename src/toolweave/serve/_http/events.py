"""Streams of server-sent events that outlive one HTTP response, kept in a store where there is one (SEP-1699).

A legacy client whose connection breaks comes back with `Last-Event-ID` and gets the events it has missed. The revision
2026-07-28 has nothing to replay.
"""

from __future__ import annotations

import logging
import secrets
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, runtime_checkable

import anyio

from toolweave._option_checks import check_number
from toolweave.protocol.jsonrpc import RequestId, encode_notification
from toolweave.serve._http.response import event_of
from toolweave.serve._http.session_peers import SharedEvent, SharedEvents
from toolweave.serve._request_state import from_base64url, to_base64url
from toolweave.serve._task_spawner import SpawnsTasks

_log = logging.getLogger("toolweave.serve._http.app")


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One message of a stream, with its event id.

    Attributes:
        message: The JSON-RPC message as JSON; None for a point to resume from.
        event_id: Its id.
    """

    message: Any
    event_id: str | None = None


@runtime_checkable
class EventStore(Protocol):
    """Stores events; has the interface of the SDK's `EventStore`, so that stores written for it fit.

    Messages are JSON texts.
    """

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Store a message (None: only a point to resume from) and return its event id."""
        ...

    async def replay_events_after(
        self, last_event_id: str, send_callback: Callable[[Any], Awaitable[None]]
    ) -> str | None:
        """Send the messages of the same stream after an event; return the stream's id, None for an unknown event."""
        ...


EventStoreKind: TypeAlias = Literal["memory"]
"""The event stores that a config or a command can name."""

RETRY_SECONDS = 1.0
"""The default time after which clients resume a stream."""


class EventOptions(TypedDict, total=False):
    """The options of an app about streams that are resumed; see `HttpOptions`."""

    event_store: EventStore
    retry_interval: int


class MemoryEventStore:
    """Keeps the newest events of all streams in this process.

    Args:
        size: Maximum number of events; the oldest are dropped first.
        max_bytes: Maximum size of all messages together, likewise.

    Raises:
        TypeError: One of them is not a number.
        ValueError: One of them is negative or not finite: nothing would ever be dropped.
    """

    def __init__(self, size: int = 10_000, *, max_bytes: int = 64_000_000) -> None:
        check_number("MemoryEventStore.size", size)
        check_number("MemoryEventStore.max_bytes", max_bytes)
        self._events: OrderedDict[str, tuple[str, Any]] = OrderedDict()
        self._size = size
        self._max_bytes = max_bytes
        self._bytes = 0
        self._number = 0

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Store a message and return its event id."""
        self._number += 1
        event_id = str(self._number)
        self._events[event_id] = (stream_id, message)
        self._bytes += _size_of(message)
        # The oldest are dropped first, whichever stream they are of: a client that resumes behind a dropped event gets
        # an unknown id, and not a part of its stream.
        while len(self._events) > self._size or self._bytes > self._max_bytes:
            _, (_, dropped) = self._events.popitem(last=False)
            self._bytes -= _size_of(dropped)
        return event_id

    async def replay_events_after(
        self, last_event_id: str, send_callback: Callable[[Any], Awaitable[None]]
    ) -> str | None:
        """Send the messages of the same stream after an event."""
        if last_event_id not in self._events:
            return None
        stream = self._events[last_event_id][0]
        # By number and not by position: events of other streams lie between, and older ones may have been dropped.
        after = int(last_event_id)
        for event_id, (of, message) in list(self._events.items()):
            if of == stream and int(event_id) > after and message is not None:
                await send_callback(StoredEvent(message, event_id))
        return stream


def event_options(store: EventStoreKind | None, retry_seconds: float | None) -> EventOptions:
    """Return the options of an app that keeps its streams for clients to resume.

    Args:
        store: The kind of the event store, or None for no store.
        retry_seconds: The time after which clients resume a stream; by default a second, if there is a store.
    """
    options: EventOptions = {}
    if store is not None:
        options["event_store"] = MemoryEventStore()
        if retry_seconds is None:
            retry_seconds = RETRY_SECONDS
    if retry_seconds is not None:
        options["retry_interval"] = max(1, round(retry_seconds * 1000))
    return options


def _size_of(message: Any) -> int:
    """Return the bytes of a message in memory; those of a message that is not a text are unknown and count nothing."""
    if isinstance(message, str):
        return sys.getsizeof(message)
    return 0


class Sink(Protocol):
    """An HTTP response that events are written to."""

    async def write(self, chunk: bytes, *, last: bool = False) -> None:
        """Write bytes of the stream."""
        ...


class EventStream:
    """The events of one stream of a session: written to the response that carries it now, and kept in a store.

    Args:
        name: The stream's name in the store, unique among all sessions.
        prefix: Begins every event id that the client sees, so that its stream can be recognised.
        store: Keeps the events, or None.

    Attributes:
        name: The stream's name in the store.
        ended: Whether its last event was written.
    """

    def __init__(self, name: str, prefix: str, store: EventStore | None) -> None:
        self.name = name
        self.ended: bool = False
        self._prefix = prefix
        self._store = store
        self._sink: Sink | None = None
        # Held while an event is stored and written: two notifications that are sent at once must have the same order in
        # the store as on the wire, or a client that resumes would miss one of them.
        self._lock = anyio.Lock()

    @property
    def carried(self) -> bool:
        """Whether a response carries the stream."""
        return self._sink is not None

    def carry(self, sink: Sink | None) -> None:
        """Write further events to this response; to none with None."""
        self._sink = sink

    def drop(self, sink: Sink) -> None:
        """Stop writing to this response, if it is still the one."""
        if self._sink is sink:
            self._sink = None

    async def prime(self, retry: int | None) -> None:
        """Write an event without data, after which the client can resume, and the time it may wait until then.

        Args:
            retry: That time, in milliseconds.
        """
        async with self._lock:
            await self._prime(retry)

    async def _prime(self, retry: int | None) -> None:
        # Stored although it has no data: the client can resume after it even if no message has been written yet.
        event_id = await self._kept(None)
        wait = b"" if retry is None else b"retry: %d\r\n" % retry
        if event_id is not None and self._sink is not None:
            await self._sink.write(b"id: %s\r\n%sdata: \r\n\r\n" % (event_id.encode(), wait))

    async def _kept(self, message: str | None, *, last: bool = False) -> str | None:
        """Store a message and return its event id; None if nothing is kept."""
        if self._store is None:
            return None
        try:
            return self._prefix + await self._store.store_event(self.name, message)
        except Exception:  # boundary: a store of the user's; the message is delivered, only not to be resumed
            _log.exception("an event could not be stored")
            return None

    async def put(self, message: bytes, *, last: bool = False) -> None:
        """Keep one message, and write it where the stream is carried."""
        async with self._lock:
            self.ended = self.ended or last
            # Stored before it is written: a client that loses the connection during the write can still get it.
            event_id = await self._kept(message.decode(), last=last)
            if self._sink is not None:
                await self._sink.write(event_of(message, event_id), last=last)

    async def resume(self, sink: Sink, after: str, retry: int | None) -> None:
        """Write the events after one, then carry the stream on in this response if it is not at its end.

        Args:
            sink: The response.
            after: The event's id in the store.
            retry: As for `prime`.
        """
        # The lock is held from the first read to the end of the handover. So no event is stored in between, and each is
        # either read from the store or written by `put`.
        async with self._lock:
            await replay(self._store, after, sink, self._prefix)
            if not self.ended:
                self._sink = sink
                await self._prime(retry)


async def replay(store: EventStore | None, after: str, sink: Sink | None, prefix: str) -> str | None:
    """Write the stored events after one to a response; return the name of their stream, None for an unknown event."""
    if store is None:
        return None

    async def sending(event: Any) -> None:
        if sink is not None and event.message is not None:
            await sink.write(event_of(event.message.encode(), prefix + str(event.event_id)))

    return await store.replay_events_after(after, sending)


class SharedStream(EventStream):
    """The stream that answers one request, kept for all processes that serve the session.

    Args:
        label: Its name in the session; says which request it answers.
        prefix: Begins its name, and every event id that the client sees: that of the session, in all processes.
        events: Keeps the events.
    """

    def __init__(self, label: str, prefix: str, events: SharedEvents) -> None:
        super().__init__(prefix + label, prefix, None)
        self._label = label
        self._events = events
        self._number = 0

    async def _kept(self, message: str | None, *, last: bool = False) -> str | None:
        """Keep a message and return its event id."""
        number = self._number
        self._number = self._number + 1
        await self._events.keep(self.name, SharedEvent(number, message, last))
        return f"{self._prefix}{self._label}.{number}"


_MAX_KEY = 200


def stream_label(key: RequestId) -> str | None:
    """Return a new name for the stream that answers a request; None for an id that is too long for that."""
    # JSON may have lone surrogates in a string, and the id has to come back unchanged.
    text = str(key).encode("utf-8", "surrogatepass")
    if len(text) > _MAX_KEY:
        return None
    # ids 1 and "1" are two requests, and a client may use an id again
    return f"{'i' if isinstance(key, int) else 's'}{to_base64url(text)}~{secrets.token_hex(8)}"


def read_event(event: str) -> tuple[str, RequestId, int] | None:
    """Return the name of a stream that answers a request, that request and the number of the event, by an event id."""
    label, _, number = event.rpartition(".")
    kind = label[:1]
    key = label[1:].partition("~")[0]
    try:
        text = from_base64url(key).decode("utf-8", "surrogatepass")
        request = {"i": int, "s": str}[kind](text)
        if number.isdecimal():
            return (label, request, int(number))
        return None
    except (KeyError, ValueError):
        return None


PushedNotification: TypeAlias = tuple[str, Mapping[str, Any]]


class NotificationStream(EventStream):
    """The stream of a session that belongs to no request: notifications, the newest of each kind.

    Without a store they wait until a response carries the stream. The queue is bounded, because a newer notification
    replaces an older one of the same kind.

    Args:
        tasks: Where notifications are written: their publishers never wait.

    Attributes:
        mark: The event id that all its events have, where a client comes back to another process: that process cannot
            know the missed changes, and reports that all may have changed. None where nothing is reported.
    """

    def __init__(self, name: str, prefix: str, store: EventStore | None, tasks: SpawnsTasks) -> None:
        super().__init__(name, prefix, store)
        self.mark: str | None = None
        self._tasks = tasks
        self._waiting: dict[tuple[str, str], PushedNotification] = {}
        self._delivering = False

    async def _kept(self, message: str | None, *, last: bool = False) -> str | None:
        if self._store is None:
            return self.mark
        return await super()._kept(message, last=last)

    def push(self, method: str, params: Mapping[str, Any]) -> None:
        """Queue a notification; never waits."""
        # By method and URI: "the list has changed" is the same if it is said twice, a change of another resource is
        # not.
        self._waiting[method, str(params.get("uri", ""))] = method, params
        self.deliver()

    def deliver(self) -> None:
        """Write the queued notifications, if there is a response or store to write to."""
        # One task at a time, so that the order of the notifications is kept; it takes those that come while it runs.
        if self._can_deliver and not self._delivering:
            self._delivering = True
            self._tasks.start_soon(self._deliver)

    @property
    def _can_deliver(self) -> bool:
        """Whether notifications wait and there is a response or a store for them."""
        if self._store is None and not self.carried:
            return False
        return bool(self._waiting)

    async def _deliver(self) -> None:
        try:
            while self._can_deliver:
                method, params = self._waiting.pop(next(iter(self._waiting)))
                await self.put(encode_notification(method, params))
        except OSError:  # of an ASGI server whose client is gone; the client comes back for the stream
            self._sink = None
        finally:
            self._delivering = False
