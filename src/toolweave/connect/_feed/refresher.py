"""Synchronization of a connection's cached lists with the server.

One mechanism for the signals of all eras: `list_changed` notifications (legacy), a listen stream (modern),
an expired `ttlMs`, and the difference after a restart. Each makes the list be read again, once for a burst,
and the change is emitted once. The cost of a notification does not grow with their number.
"""

from __future__ import annotations

import itertools
import logging
import math
import random
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.abc

from toolweave._json_types import Json, JsonObject, array_or_empty, as_integer, as_object, object_or_empty
from toolweave.config import ServerConfig
from toolweave.connect._events import EventListeners, EventName
from toolweave.connect._feed.list_cache import ListKind, LiveList, backoff_seconds
from toolweave.connect._feed.subscriptions import ResourceSubscriptions, ResourceUpdated, TaskListeners
from toolweave.connect._session import Session
from toolweave.connect._transports import OpenSession
from toolweave.errors import AuthRequiredError, ConnectionLostError, ProtocolError, ServerError
from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from toolweave.protocol.meta import SUBSCRIPTION_ID
from toolweave.protocol.subscriptions import LIST_CHANGED, LIST_FILTERS, RESOURCE_SUBSCRIPTIONS, TASK_IDS
from toolweave.protocol.tasks import declares_tasks

_STABLE_SECONDS = 60.0
_REFUSALS = frozenset({INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS})
_numbers = itertools.count(1)


class _ListenRequest:
    """One `subscriptions/listen` request."""

    def __init__(self, wanted: JsonObject) -> None:
        self.id = f"listen-{next(_numbers)}"
        self.wanted = wanted
        self.honoured: JsonObject | None = None  # None: not acknowledged yet
        self.scope = anyio.CancelScope()
        self.over = False
        self.failure: ServerError | None = None
        self.since = 0.0

    @property
    def uris(self) -> list[str]:
        return self.wanted.get(RESOURCE_SUBSCRIPTIONS, [])


class ChangeStream:
    """The change stream of one session.

    `on_missed` is called whenever changes may have been missed until now.
    """

    def __init__(
        self,
        session: Session,
        subscriptions: ResourceSubscriptions,
        tasks: TaskListeners,
        *,
        server: str,
        on_missed: Callable[[], None],
    ) -> None:
        self._session = session
        self._subscriptions = subscriptions
        self._tasks = tasks
        self._server = server
        self._on_missed = on_missed
        self._lists = _list_filters(session.agreement.capabilities)
        self._announces_tasks = declares_tasks(session.agreement.capabilities)
        self._held: _ListenRequest | None = None
        self._opening: _ListenRequest | None = None
        self._refusal: ServerError | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._wake = anyio.Event()

    def look(self) -> None:
        """Review the wanted filters again."""
        self._wake.set()

    def retry_refused(self) -> None:
        """Try again if the server refused our credentials."""
        if isinstance(self._refusal, AuthRequiredError):
            self._refusal = None
            self._wake.set()

    def acknowledged(self, params: JsonObject) -> None:
        """Handle the first message of a stream: the filters that the server honours."""
        named = object_or_empty(params.get("_meta")).get(SUBSCRIPTION_ID)
        stream = self._opening
        if stream is None or named not in (stream.id, None):
            return
        honoured = as_object(params.get("notifications"))
        if honoured is None:
            stream.honoured = stream.wanted
        else:
            stream.honoured = honoured
        self._wake.set()

    def cancelled(self, params: JsonObject) -> None:
        """Handle the server's cancellation of a stream."""
        for stream in (self._opening, self._held):
            if stream is not None and stream.id == params.get("requestId"):
                stream.scope.cancel()

    async def run(self) -> None:
        """Keep the stream open until the session ends."""
        async with anyio.create_task_group() as tasks:
            while not self._session.wire.over:
                self._wake = anyio.Event()
                self._review()
                with anyio.move_on_after(self._begin(tasks)):
                    await self._wake.wait()

    def _review(self) -> None:
        """Update the state of the streams."""
        opening = self._opening
        if opening is not None:
            if opening.honoured is not None:
                self._opening = None
                self._replace(opening)
            elif opening.over:
                self._opening = None
                self._failed(opening)
        held = self._held
        if held is None:
            return
        if held.over:
            self._held = None
            self._failed(held)
        else:
            # a new subscriber may have arrived meanwhile
            self._confirm_uris(held, after_gap=False)

    def _replace(self, opened: _ListenRequest) -> None:
        """Hold an acknowledged stream in place of the one before."""
        before = self._held
        self._held = opened
        opened.since = anyio.current_time()
        if before is not None:
            before.scope.cancel()  # only now: both received the notifications meanwhile
        else:
            self._on_missed()
        self._confirm_uris(opened, after_gap=before is None)

    def _begin(self, tasks: anyio.abc.TaskGroup) -> float | None:
        """Open or close a stream when the wanted filters changed; return the seconds until that is allowed, or None."""
        # The filters of a stream cannot change: other filters are another stream. The old one is held until the new
        # one is acknowledged, so that no change falls between them.
        wanted = self._wanted()
        opening = self._opening
        if opening is not None:
            if opening.wanted == wanted:
                return None
            opening.scope.cancel()
            self._opening = None
        held = self._held
        if held is None:
            if not wanted:
                return None
        elif held.wanted == wanted:
            return None
        elif not wanted:
            held.scope.cancel()
            self._held = None
            return None
        wait = self._retry_at - anyio.current_time()
        if wait > 0:
            return wait
        self._opening = _ListenRequest(wanted)
        tasks.start_soon(self._hold, self._opening)
        return None

    async def _hold(self, stream: _ListenRequest) -> None:
        with stream.scope:
            try:
                wanted = {"notifications": stream.wanted}
                await self._session.request(methods.SUBSCRIPTIONS_LISTEN, wanted, request_id=stream.id)
            except ServerError as exc:
                stream.failure = exc
        stream.over = True
        self._wake.set()

    def _wanted(self) -> JsonObject:
        uris = self._subscriptions.uris
        if self._refusal is not None:
            for uri in uris:
                self._subscriptions.refuse(uri, self._refusal)
            return {}
        wanted: Json = {**self._lists}
        if uris:
            wanted[RESOURCE_SUBSCRIPTIONS] = list(uris)
        tasks = list(self._tasks.ids)
        if tasks and self._announces_tasks:
            wanted[TASK_IDS] = tasks
        return wanted

    def _confirm_uris(self, stream: _ListenRequest, *, after_gap: bool) -> None:
        """Confirm or refuse subscriptions by the filters that the server honours."""
        honoured = array_or_empty(object_or_empty(stream.honoured).get(RESOURCE_SUBSCRIPTIONS))
        promised = {uri.rstrip("/") for uri in honoured if isinstance(uri, str)}
        for uri in stream.uris:
            if uri.rstrip("/") in promised:
                self._subscriptions.confirm(uri, after_gap=after_gap)
            else:
                text = f"it does not offer notifications about updates of {uri!r}"
                self._subscriptions.refuse(uri, ProtocolError(text, server=self._server, code=INVALID_PARAMS))

    def _failed(self, stream: _ListenRequest) -> None:
        """Schedule the next try of a stream that ended; the server's refusal ends the subscriptions that it names."""
        now = anyio.current_time()
        failure = stream.failure
        # A stream that was held for long is a new beginning, and its end the first failure of another row.
        if stream.honoured is not None and now - stream.since >= _STABLE_SECONDS:
            self._failures = 0
        self._failures += 1
        self._retry_at = now + backoff_seconds(self._failures, random.random())  # noqa: S311 - spreads retries
        if failure is None or not _is_refusal(failure):
            why = "it closed it" if failure is None else failure
            _log.info("server %r: its stream of changes ended: %s", self._server, why)
        elif TASK_IDS in stream.wanted:
            _log.info("server %r: it sends no notifications about its tasks: %s", self._server, failure)
            self._tasks.refuse()
            self._retry_at = now  # the rest is not to wait for them
        elif stream.uris and isinstance(failure, ProtocolError) and failure.code != METHOD_NOT_FOUND:
            kept = self._held.uris if self._held is not None else []
            for uri in stream.uris:
                if uri not in kept:
                    self._subscriptions.refuse(uri, failure)
            self._retry_at = now  # the rest is not to wait for them
        else:
            _log.info("server %r: no subscription to its changes: %s", self._server, failure)
            self._refusal = failure


def _list_filters(capabilities: JsonObject) -> Json:
    """Return the filters for the lists whose changes a server declares to notify."""
    offered = {name: object_or_empty(capabilities.get(name)) for name in LIST_FILTERS}
    return {LIST_FILTERS[name]: True for name, one in offered.items() if one.get("listChanged") is True}


def _is_refusal(error: ServerError) -> bool:
    """Whether an error is permanent, so that a retry would get the same answer."""
    if isinstance(error, AuthRequiredError):
        return True
    if not isinstance(error, ProtocolError):
        return False
    if error.code in _REFUSALS:
        return True
    status = as_integer(object_or_empty(error.data).get("http_status"))
    if status is None or status in (408, 429):
        return False
    return 400 <= status < 500


_log = logging.getLogger("toolweave.connect")
_DEBOUNCE_SECONDS = 0.05
_MAX_DEBOUNCE_SECONDS = 1.0

CHANGED_EVENTS: dict[ListKind, EventName] = {
    "tools": "tools_changed",
    "prompts": "prompts_changed",
    "resources": "resources_changed",
    "resourceTemplates": "resources_changed",
}
"""The event for changes of a list."""
CAPABILITIES: dict[ListKind, str] = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "resourceTemplates": "resources",
}
"""The server capability that a list belongs to."""

Refresh = Callable[[OpenSession], Awaitable[object]]


class _TrackedList:
    """One list, and the function that reads it."""

    def __init__(self, live: LiveList[Any], refresh: Refresh, *, always: bool) -> None:
        self.live = live
        self.refresh = refresh
        self.always = always
        self.wake = anyio.Event()
        self.event: EventName = CHANGED_EVENTS[live.kind]
        self.capability = CAPABILITIES[live.kind]

    def due(self, *, has_listeners: bool) -> float:
        """Return the time of the next reading; without a listener only an `always` list is read, when outdated."""
        live = self.live
        if not self.always:
            return live.due if has_listeners else math.inf
        if not live.tried:
            return math.inf  # the first reading in a session is not ours
        if has_listeners:
            return live.due
        if live.outdated and not live.failures:
            return 0.0
        return math.inf


class ListRefresher:
    """A refresher of cached lists: after a change at the server, an expiry, and a restart.

    When the server wants other credentials, nothing more is read until the `always` list has been read
    again.
    """

    def __init__(self, config: ServerConfig, events: EventListeners) -> None:
        self._config = config
        self._events = events
        self._lists: list[_TrackedList] = []
        self._listening: ChangeStream | None = None
        self._subscriptions = ResourceSubscriptions(config.name, events)
        self._tasks = TaskListeners(config.name)
        self._admitted = anyio.Event()
        self._admitted.set()
        self._handlers_by_method: dict[str, Callable[[JsonObject], None]] = {
            methods.NOTIFICATIONS_RESOURCES_UPDATED: self._subscriptions.updated,
            methods.NOTIFICATIONS_TASKS: self._tasks.updated,
            methods.NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED: self._acknowledged,
            methods.NOTIFICATIONS_CANCELLED: self._cancelled,
        }
        for capability in set(CAPABILITIES.values()):
            self._handlers_by_method[LIST_CHANGED[capability]] = self._change_handler(capability)
        events.on_added = self._listener_added

    def track(self, live: LiveList[Any], refresh: Refresh, *, always: bool = False) -> None:
        """Keep a list up to date, with `always` also without listeners to its changes."""
        followed = _TrackedList(live, refresh, always=always)
        live.on_read = lambda: self._was_read(followed)
        self._lists.append(followed)

    def notified(self, method: str, params: JsonObject) -> None:
        """Handle a notification; unrelated ones are ignored."""
        handler = self._handlers_by_method.get(method)
        if handler is not None:
            handler(params)

    def invalidate(self) -> None:
        """Handle a gap in which notifications of any kind may have been lost."""
        self._on_missed()
        self._subscriptions.notify_missed()

    async def subscribe(self, uri: str, listener: Callable[[ResourceUpdated], Any]) -> Callable[[], None]:
        """Call `listener` on updates of a resource; see `ResourceSubscriptions.subscribe`."""
        return await self._subscriptions.subscribe(uri, listener)

    def listen_to_task(self, task: str, listener: Callable[[JsonObject], object]) -> Callable[[], None]:
        """Call `listener` with the server's notifications of a task; see `TaskListeners.listen`."""
        return self._tasks.listen(task, listener)

    def reset(self) -> None:
        """Forget the tasks of the connection's previous life, whose event loop may be closed while they wait."""
        self._admitted = anyio.Event()
        for one in self._lists:
            one.wake = anyio.Event()

    def begin(self) -> None:
        """Reset the lists for a new session; to be called before the first reading."""
        self._admitted.set()
        for one in self._lists:
            one.live.forget()
            one.wake.set()

    async def run_background(self, session: OpenSession) -> None:
        """Follow the changes until the session ends; started before the first listing, to miss none."""
        conversation = session.conversation
        server = self._config.name
        capabilities = conversation.agreement.capabilities
        self._subscriptions.begin()
        self._tasks.begin()
        try:
            async with anyio.create_task_group() as tasks:
                for one in self._lists:
                    if one.always or one.capability in capabilities or one.live.items:
                        tasks.start_soon(self._keep, one, session)
                if conversation.agreement.modern:
                    self._listening = ChangeStream(
                        conversation, self._subscriptions, self._tasks, server=server, on_missed=self._on_missed
                    )
                    self._subscriptions.on_change = self._tasks.on_change = self._listening.look
                    tasks.start_soon(self._listening.run)
                elif object_or_empty(capabilities.get("resources")).get("subscribe"):
                    tasks.start_soon(self._subscriptions.keep, conversation, self._config.timeout.read)
        finally:
            self._listening = None
            self._subscriptions.end(ConnectionLostError("the connection ended", server=server, sent=False))

    async def _keep(self, one: _TrackedList, session: OpenSession) -> None:
        pause = _DEBOUNCE_SECONDS
        while True:
            # Renewed before the time is computed: a change after that wakes the wait below.
            one.wake = anyio.Event()
            await self._admitted.wait()
            wait = self._due(one) - anyio.current_time()
            if wait > 0:
                quiet_at = anyio.current_time() + _MAX_DEBOUNCE_SECONDS
                with anyio.move_on_after(wait):
                    await one.wake.wait()
                if anyio.current_time() > quiet_at:
                    pause = _DEBOUNCE_SECONDS
                continue
            await anyio.sleep(pause)
            # a server that never rests costs less and less
            pause = min(2 * pause, _MAX_DEBOUNCE_SECONDS)
            if self._due(one) > anyio.current_time():
                continue  # another caller has read it meanwhile
            try:
                await one.refresh(session)
            except ServerError as exc:
                _log.warning("%s", exc)
                # 403 is about one request
                if isinstance(exc, AuthRequiredError) and exc.status != 403:
                    self._admitted = anyio.Event()

    def _due(self, one: _TrackedList) -> float:
        return one.due(has_listeners=self._events.has_listeners(one.event))

    def _was_read(self, one: _TrackedList) -> None:
        if one.always and not one.live.failures:
            self._admitted.set()
            self._subscriptions.retry_refused()
            if self._listening is not None:
                self._listening.retry_refused()
        one.wake.set()

    def _listener_added(self, event: EventName) -> None:
        for one in self._lists:
            if one.event == event:
                one.wake.set()

    def _change_handler(self, capability: str) -> Callable[[JsonObject], None]:
        def changed(_params: JsonObject) -> None:
            for one in self._lists:
                if one.capability == capability:
                    one.live.expire()
                    one.wake.set()

        return changed

    def _acknowledged(self, params: JsonObject) -> None:
        if self._listening is not None:
            self._listening.acknowledged(params)

    def _cancelled(self, params: JsonObject) -> None:
        if self._listening is not None:
            self._listening.cancelled(params)

    def _on_missed(self) -> None:
        """Invalidate every list: notifications may have been lost during the gap."""
        for one in self._lists:
            if one.live.listed:
                one.live.expire()
                one.wake.set()
