"""Synchronization of a connection's cached lists with the server.

One mechanism for the signals of all eras: `list_changed` notifications (legacy), a listen stream (modern),
an expired `ttlMs`, and the difference after a restart. Each makes the list be read again, once for a burst,
and the change is emitted once. The cost of a notification does not grow with their number.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio

from toolweave.config import ServerConfig
from toolweave.connect._events import EventListeners, EventName
from toolweave.connect._feed.change_stream import ChangeStream
from toolweave.connect._feed.list_cache import ListKind, LiveList
from toolweave.connect._feed.subscriptions import ResourceSubscriptions, ResourceUpdated
from toolweave.connect._transports import OpenSession
from toolweave.errors import AuthRequiredError, ConnectionLostError, ServerError
from toolweave.protocol import methods
from toolweave.protocol.json_types import as_object
from toolweave.protocol.subscriptions import LIST_CHANGED

__all__ = ["CAPABILITIES", "CHANGED_EVENTS", "ListRefresher"]

_log = logging.getLogger("toolweave.connect")
_DEBOUNCE_SECONDS = 0.05
_LONGEST_DEBOUNCE_SECONDS = 1.0

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

    def due(self, *, heard: bool) -> float:
        """Return the time of the next reading; without a listener only an `always` list is read, when outdated."""
        live = self.live
        if self.always and not live.tried:
            return math.inf  # the first reading of a line is not ours
        if heard:
            return live.due
        return 0.0 if self.always and live.outdated and not live.failures else math.inf


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
        self._admitted = anyio.Event()
        self._admitted.set()
        self._takers: dict[str, Callable[[Mapping[str, Any]], None]] = {
            methods.NOTIFICATIONS_RESOURCES_UPDATED: self._subscriptions.updated,
            methods.NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED: self._acknowledged,
            methods.NOTIFICATIONS_CANCELLED: self._cancelled,
        }
        for capability in set(CAPABILITIES.values()):
            self._takers[LIST_CHANGED[capability]] = self._taker(capability)
        events.on_added = self._listener_added

    def follow(self, live: LiveList[Any], refresh: Refresh, *, always: bool = False) -> None:
        """Keep a list up to date, with `always` also without listeners to its changes."""
        followed = _TrackedList(live, refresh, always=always)
        live.on_read = lambda: self._was_read(followed)
        self._lists.append(followed)

    def notified(self, method: str, params: Mapping[str, Any]) -> None:
        """Handle a notification; unrelated ones are ignored."""
        take = self._takers.get(method)
        if take is not None:
            take(params)

    def missed(self) -> None:
        """Handle a gap in which notifications of any kind may have been lost."""
        self._on_missed()
        self._subscriptions.missed()

    async def subscribe(self, uri: str, listener: Callable[[ResourceUpdated], Any]) -> Callable[[], None]:
        """Call `listener` on updates of a resource; see `ResourceSubscriptions.subscribe`."""
        return await self._subscriptions.subscribe(uri, listener)

    def begin(self) -> None:
        """Reset the lists for a new session; to be called before the first reading."""
        self._admitted.set()
        for one in self._lists:
            one.live.forget()
            one.wake.set()

    async def run_background(self, line: OpenSession) -> None:
        """Follow the changes until the session ends; started before the first listing, to miss none."""
        session, server = line.session, self._config.name
        capabilities = session.agreement.capabilities
        self._subscriptions.begin()
        try:
            async with anyio.create_task_group() as tasks:
                for one in self._lists:
                    if one.always or one.capability in capabilities or one.live.items:
                        tasks.start_soon(self._keep, one, line)
                if session.agreement.modern:
                    self._listening = ChangeStream(
                        session, self._subscriptions, server=server, on_missed=self._on_missed
                    )
                    self._subscriptions.on_change = self._listening.look
                    tasks.start_soon(self._listening.run)
                elif (as_object(capabilities.get("resources")) or {}).get("subscribe"):
                    tasks.start_soon(self._subscriptions.keep, session, self._config.timeout.read)
        finally:
            self._listening = None
            self._subscriptions.end(ConnectionLostError("the connection ended", server=server, sent=False))

    async def _keep(self, one: _TrackedList, line: OpenSession) -> None:
        pause = _DEBOUNCE_SECONDS
        while True:
            one.wake = anyio.Event()
            await self._admitted.wait()
            wait = self._due(one) - anyio.current_time()
            if wait > 0:
                quiet_at = anyio.current_time() + _LONGEST_DEBOUNCE_SECONDS
                with anyio.move_on_after(wait):
                    await one.wake.wait()
                if anyio.current_time() > quiet_at:
                    pause = _DEBOUNCE_SECONDS
                continue
            await anyio.sleep(pause)
            pause = min(2 * pause, _LONGEST_DEBOUNCE_SECONDS)  # a server that never rests costs less and less
            if self._due(one) > anyio.current_time():
                continue  # somebody has read it meanwhile
            try:
                await one.refresh(line)
            except ServerError as exc:
                _log.warning("%s", exc)
                if isinstance(exc, AuthRequiredError) and exc.status != 403:  # 403 is about one request
                    self._admitted = anyio.Event()

    def _due(self, one: _TrackedList) -> float:
        return one.due(heard=self._events.heard(one.event))

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

    def _taker(self, capability: str) -> Callable[[Mapping[str, Any]], None]:
        def changed(_params: Mapping[str, Any]) -> None:
            for one in self._lists:
                if one.capability == capability:
                    one.live.expire()
                    one.wake.set()

        return changed

    def _acknowledged(self, params: Mapping[str, Any]) -> None:
        if self._listening is not None:
            self._listening.acknowledged(params)

    def _cancelled(self, params: Mapping[str, Any]) -> None:
        if self._listening is not None:
            self._listening.cancelled(params)

    def _on_missed(self) -> None:
        """Invalidate every list: notifications may have been lost during the gap."""
        for one in self._lists:
            if one.live.listed:
                one.live.expire()
                one.wake.set()
