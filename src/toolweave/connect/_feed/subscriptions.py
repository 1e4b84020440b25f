"""Subscriptions of a connection to resources and tasks, and the server's consent to them.

Tracks those of both eras, and subscribes to resources at legacy servers (server/resources, Subscriptions); the change
stream does so at modern ones. A subscription outlives its session: it is made again on the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import anyio

from toolweave._json_types import JsonObject
from toolweave._value import Value
from toolweave.config.secret_args import mask_url
from toolweave.connect._events import EventListeners, notify_listeners
from toolweave.connect._session import Session
from toolweave.errors import AuthRequiredError, RequestTimeoutError, ServerError
from toolweave.protocol import methods
from toolweave.protocol.tasks import TASK_ID
from toolweave.protocol.uris import normal_uri

_log = logging.getLogger("toolweave.connect")
_MAX_PARENTS = 32


class ResourceUpdated(Value, frozen=True, kw_only=True):
    """A resource that was subscribed to has changed: read it again.

    Attributes:
        uri: The resource; it may be a part of the one that was subscribed to.
        missed: True when the server did not say so: the connection was interrupted, and an update may
            have been missed.
    """

    uri: str
    missed: bool = False


class _Subscription:
    """The listeners to one URI, and the server's consent."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.listeners: dict[object, Callable[[ResourceUpdated], Any]] = {}
        self.begin()

    def begin(self) -> None:
        """Reset the server's consent, to be requested."""
        self.settled = anyio.Event()
        self.confirmed = False
        self.refusal: ServerError | None = None


class ResourceSubscriptions:
    """The subscriptions of one connection.

    Attributes:
        on_change: Called when the set of the URIs has changed.
    """

    def __init__(self, server: str, events: EventListeners) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._server = server
        self._events = events
        self._by_uri: dict[str, _Subscription] = {}

    @property
    def uris(self) -> tuple[str, ...]:
        """The subscribed URIs, without those that this server has refused."""
        return tuple(uri for uri, one in self._by_uri.items() if one.refusal is None)

    async def subscribe(self, uri: str, listener: Callable[[ResourceUpdated], Any]) -> Callable[[], None]:
        """Call `listener` on updates of a resource; return the unsubscribe once the server has agreed.

        Raises:
            ServerError: The server refuses, or went away before it answered.
        """
        # All listeners of a resource share one subscription at the server. `settled` is set by its first answer, and a
        # later listener does not wait again: only a refusal makes another request.
        one = self._by_uri.get(uri)
        if one is None:
            one = self._by_uri[uri] = _Subscription(uri)
            self.on_change()
        elif one.refusal is not None:
            one.begin()
            self.on_change()
        token = object()
        one.listeners[token] = listener

        def unsubscribe() -> None:
            one.listeners.pop(token, None)
            # Compared, since the resource may have been subscribed to anew after the last listener had left.
            if not one.listeners and self._by_uri.get(uri) is one:
                del self._by_uri[uri]
                self.on_change()

        try:
            await one.settled.wait()
            if one.refusal is not None and not one.confirmed:
                raise one.refusal
        except BaseException:
            unsubscribe()
            raise
        return unsubscribe

    def begin(self) -> None:
        """Reset for a new session, on which nothing has been requested yet."""
        for one in self._by_uri.values():
            one.refusal = None

    def retry_refused(self) -> None:
        """Request again the subscriptions that were refused for our credentials."""
        refused = [one for one in self._by_uri.values() if isinstance(one.refusal, AuthRequiredError)]
        for one in refused:
            one.refusal = None
        if refused:
            self.on_change()

    def end(self, error: ServerError) -> None:
        """Note that the session has ended; subscriptions still waiting for an answer fail with `error`."""
        for one in tuple(self._by_uri.values()):
            if not one.settled.is_set():
                self.refuse(one.uri, error)

    def notify_missed(self) -> None:
        """Notify all listeners that an update may have been missed."""
        for one in tuple(self._by_uri.values()):
            if one.confirmed:
                self._notify(one, ResourceUpdated(uri=one.uri, missed=True))

    def confirm(self, uri: str, *, after_gap: bool) -> None:
        """Note that the server notifies of a resource from now on; `after_gap`: it did not until now."""
        one = self._by_uri.get(uri)
        if one is None:
            return
        if one.confirmed and after_gap:
            self._notify(one, ResourceUpdated(uri=uri, missed=True))
        one.confirmed = True
        one.settled.set()

    def refuse(self, uri: str, error: ServerError) -> None:
        """Note that the server refuses to notify of a resource in this session."""
        one = self._by_uri.get(uri)
        if one is None or one.refusal is not None:
            return
        one.refusal = error
        # A subscription that was confirmed once has no waiting caller, so the refusal is an event.
        if one.settled.is_set():
            _log.warning("server %r: it sends no more notifications about %r: %s", self._server, mask_url(uri), error)
            self._events.emit("error", error)
        one.settled.set()

    def updated(self, params: JsonObject) -> None:
        """Handle a notification that a resource, or a part of one, was updated."""
        uri = params.get("uri")
        if not isinstance(uri, str):
            return
        update = ResourceUpdated(uri=uri)
        self._events.emit("resource_updated", update)
        one = self._find(uri)
        if one is not None:
            notify_listeners(tuple(one.listeners.values()), update, server=self._server, what=uri)

    async def keep(self, session: Session, seconds: float) -> None:
        """Keep a legacy server's subscriptions up to date until its session ends; each request within `seconds`."""
        held: set[str] = set()
        while True:
            # Renewed before the set is read: a change during the requests below starts another round.
            changed = anyio.Event()
            self.on_change = changed.set
            for uri in self.uris:
                if uri in held:
                    self.confirm(uri, after_gap=False)
                    continue
                error = await self._ask(session, methods.RESOURCES_SUBSCRIBE, uri, seconds)
                if error is None:
                    held.add(uri)
                    self.confirm(uri, after_gap=True)
                else:
                    self.refuse(uri, error)
            for uri in held.difference(self.uris):
                held.discard(uri)
                error = await self._ask(session, methods.RESOURCES_UNSUBSCRIBE, uri, seconds)
                if error is not None:
                    _log.info("%s", error)
            await changed.wait()

    async def _ask(self, session: Session, method: str, uri: str, seconds: float) -> ServerError | None:
        with anyio.move_on_after(seconds):
            try:
                await session.request(method, {"uri": uri})
            except ServerError as exc:
                return exc
            return None
        return RequestTimeoutError(f"no answer to {method} within {seconds:g} s", server=self._server, seconds=seconds)

    def _notify(self, one: _Subscription, update: ResourceUpdated) -> None:
        self._events.emit("resource_updated", update)
        notify_listeners(tuple(one.listeners.values()), update, server=self._server, what=one.uri)

    def _find(self, uri: str) -> _Subscription | None:
        """Return the subscription to a resource, else to the nearest parent of it.

        A server may spell the URI otherwise than the subscriber.
        """
        one = _nearest(self._by_uri, uri)
        if one is not None:
            return one
        return _nearest({normal_uri(own): one for own, one in self._by_uri.items()}, normal_uri(uri))


def _nearest(by_uri: Mapping[str, _Subscription], uri: str) -> _Subscription | None:
    part = uri
    for _ in range(_MAX_PARENTS):
        one = by_uri.get(part) or by_uri.get(f"{part}/")
        if one is not None or "/" not in part:
            return one
        part = part.rpartition("/")[0]
    return None


class TaskListeners:
    """The listeners to tasks of one server, by the ids that it gave them (extension `io.modelcontextprotocol/tasks`).

    A server need not notify of them, and notifications may be lost between two sessions: a caller that has to know
    also polls.

    Attributes:
        on_change: Called when the set of the ids has changed.
    """

    def __init__(self, server: str) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._server = server
        self._by_id: dict[str, dict[object, Callable[[JsonObject], object]]] = {}
        self._refused = False

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids to ask the stream for; none where the server refuses such a stream."""
        if self._refused:
            return ()
        return tuple(self._by_id)

    def begin(self) -> None:
        """Reset for a new session."""
        self._refused = False

    def refuse(self) -> None:
        """Note that the server sends no task notifications in this session."""
        self._refused = True

    def listen(self, task: str, listener: Callable[[JsonObject], object]) -> Callable[[], None]:
        """Call `listener` with the server's notifications of a task; return a function that unsubscribes."""
        token = object()
        self._by_id.setdefault(task, {})[token] = listener
        if len(self._by_id[task]) == 1:
            self.on_change()

        def end() -> None:
            there = self._by_id.get(task, {})
            if there.pop(token, None) is not None and not there:
                del self._by_id[task]
                self.on_change()

        return end

    def updated(self, params: JsonObject) -> None:
        """Handle a notification of a task."""
        listeners = self._by_id.get(str(params.get(TASK_ID)), {})
        notify_listeners(tuple(listeners.values()), params, server=self._server, what="a task")
