"""Change notifications and their subscribers: legacy conversations and modern listen streams.

A change may be published from any thread and any event loop; each subscriber receives it on its own loop, and a burst
becomes one notification. Independent of transports and features.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import anyio

from toolweave.errors import RequestError
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.uris import normal_uri
from toolweave.serve.request import Client, Push
from toolweave.tools import Toolset, Unsubscribe

_log = logging.getLogger("toolweave.serve")


class Topic(NamedTuple):
    """A subscription topic: a notification's method and, for a notification about one object, the object's name."""

    method: str
    name: str = ""


TOOLS = Topic(methods.NOTIFICATIONS_TOOLS_LIST_CHANGED)
PROMPTS = Topic(methods.NOTIFICATIONS_PROMPTS_LIST_CHANGED)
RESOURCES = Topic(methods.NOTIFICATIONS_RESOURCES_LIST_CHANGED)
_LISTS = frozenset({TOOLS, PROMPTS, RESOURCES})
UPDATED = methods.NOTIFICATIONS_RESOURCES_UPDATED


def updated_topic(uri: str) -> Topic:
    """Return the topic of the updates of a resource, the same for every spelling of its URI."""
    return Topic(UPDATED, normal_uri(uri))


class PendingChange(NamedTuple):
    """A notification that is pending."""

    method: str
    params: Mapping[str, Any]


class _Subscriber(ABC):
    """A subscriber to topics; only the newest change of each is pending, so the buffer is bounded by the topics."""

    def __init__(self, topics: Iterable[Topic]) -> None:
        self.topics: set[Topic] = set(topics)
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        # Changes may be made in any thread, and are delivered on the subscriber's loop. The lock is held only while the
        # dict is changed or exchanged, never while anything is awaited or called.
        self._waiting: dict[Topic, Mapping[str, Any]] = {}
        self._lock = threading.Lock()

    def put(self, topic: Topic, params: Mapping[str, Any], *, newest: bool = True) -> None:
        """Buffer a change, from any thread; with `newest=False` only if none of its topic is pending."""
        if topic not in self.topics:
            return
        with self._lock:
            first = not self._waiting
            if newest or topic not in self._waiting:
                self._waiting[topic] = params
        # The thread that puts the first change wakes the subscriber. The others find it awake or about to be, since
        # `take` empties the dict under the same lock.
        if first:
            self.wake_threadsafe()

    def take(self) -> list[PendingChange]:
        """Return and clear the pending changes, oldest topic first, and each list once for all of its names."""
        # Exchanged as a whole: a change that is put from another thread is in the old dictionary or in the new one,
        # never in neither.
        with self._lock:
            waiting = self._waiting
            self._waiting = {}
        found: dict[Topic, PendingChange] = {}
        for topic, params in waiting.items():
            if topic in self.topics:
                unnamed = Topic(topic.method)
                found.setdefault(unnamed if unnamed in _LISTS else topic, PendingChange(topic.method, params))
        return list(found.values())

    def wake_threadsafe(self) -> None:
        """Wake the subscriber on its own loop, from any thread."""
        try:
            self.loop.call_soon_threadsafe(self.wake)
        except RuntimeError:
            _log.debug("a subscriber's event loop is closed; it gets no more changes")

    @abstractmethod
    def wake(self) -> None:
        """Begin to deliver; runs on the subscriber's loop."""


class ListenStream(_Subscriber):
    """The changes for one modern listen stream; the request that opened it delivers them."""

    def __init__(self, topics: Iterable[Topic]) -> None:
        super().__init__(topics)
        self.ended: bool = False
        self._changed = anyio.Event()

    def wake(self) -> None:
        """Let `wait` return."""
        self._changed.set()

    async def wait(self) -> None:
        """Wait until a change is pending or the stream has ended."""
        # The event is replaced before the changes are taken: one that is put in between sets the new event.
        await self._changed.wait()
        self._changed = anyio.Event()

    def end(self) -> None:
        """End the stream gracefully, from any thread."""
        # In this order: a waiter that wakes has to find that it has ended, or would wait once more.
        self.ended = True
        self.wake_threadsafe()


class LegacySubscriber(_Subscriber):
    """The changes for one legacy conversation: those of all lists, and of the resources it subscribed to."""

    def __init__(self, push: Push, debounce: float) -> None:
        super().__init__((TOOLS, PROMPTS, RESOURCES))
        self._push = push
        self._debounce = debounce
        self._ends: dict[Topic, Unsubscribe] = {}
        self._views: dict[str, tuple[Callable[[], object], object]] = {}
        self._left = False

    def wake(self) -> None:
        """Push the pending changes after the debounce time."""
        self.loop.call_later(self._debounce, self._deliver)

    def follow(self, uri: str, end: Unsubscribe) -> None:
        """Subscribe to a resource whose updates `end` stops, when it is unfollowed or the conversation is over."""
        topic = updated_topic(uri)
        # The subscription was made elsewhere, which took time: the conversation may have ended, or have subscribed
        # twice. The one that is not needed is ended here, since no other code knows of it.
        if self._left or topic in self._ends:
            end()
            return
        self._ends[topic] = end
        self.topics.add(topic)

    def follows(self, uri: str) -> bool:
        """Whether it is subscribed to a resource by `follow`."""
        return updated_topic(uri) in self._ends

    def unfollow(self, uri: str) -> None:
        """Unsubscribe from a resource."""
        topic = updated_topic(uri)
        self.topics.discard(topic)
        self._ends.pop(topic, nothing_to_end)()

    def restrict(self, method: str, view: Callable[[], object] | None) -> None:
        """Notify of changes with this method only if the result of `view` differs from the last one; None: of each."""
        if view is None:
            self._views.pop(method, None)
        elif not self._left:
            waiting = method in self._views and any(
                topic.method == method for topic in self._waiting
            )  # not yet compared
            self._views[method] = view, self._views[method][1] if waiting else view()

    def forget_views(self) -> None:
        """Notify of every change again."""
        self._views.clear()

    def leave(self) -> None:
        """Unsubscribe from everything; pending changes are dropped."""
        self._left = True
        self.topics.clear()
        self._views.clear()
        while self._ends:
            self._ends.popitem()[1]()

    def _deliver(self) -> None:
        for change in self.take():
            try:
                if self._is_seen(change.method):
                    self._push(change.method, change.params)
            except Exception:  # boundary: one dead conversation costs no other its news
                _log.exception("a conversation could not be notified of %s", change.method)

    def _is_seen(self, method: str) -> bool:
        """Whether the client sees a change: another view than before, which is kept."""
        if method not in self._views:
            return True
        view, before = self._views[method]
        now = view()
        self._views[method] = view, now
        return now != before


def nothing_to_end() -> None:
    """Do nothing: the end of a subscription or a listener that was never begun."""


class Changes:
    """Publishes changes to all subscribers.

    Args:
        debounce: Seconds within which changes of one topic are merged.
        max_streams: Maximum number of open modern streams.

    Attributes:
        debounce: The seconds.
        on_client_notification: Called with the method and the client of a notification that is about no request.
        on_left: Called with the seconds that a legacy conversation lasted, when it has ended; None for no call.
        passed_on: Those of the servers that this one is mounted in, whose clients are notified of changes of its lists.
    """

    def __init__(self, *, debounce: float = 0.05, max_streams: int = 1024) -> None:
        self.debounce = debounce
        self.on_client_notification: Callable[[str, Client], None] | None = None
        self.on_left: Callable[[float], None] | None = None
        self.passed_on: list[Changes] = []
        self._max_streams = max_streams
        self._streams: dict[ListenStream, str | None] = {}
        self._conversations: set[LegacySubscriber] = set()
        self._by_name: dict[str, LegacySubscriber] = {}
        self._lock = threading.Lock()

    # publishing, from any thread

    def tools_changed(self) -> None:
        """Notify that the list of tools changed."""
        self.publish(TOOLS)

    def prompts_changed(self) -> None:
        """Notify that the list of prompts changed."""
        self.publish(PROMPTS)

    def resources_changed(self) -> None:
        """Notify that the list of resources, or of their templates, changed."""
        self.publish(RESOURCES)

    def resource_updated(self, uri: str) -> None:
        """Notify the subscribers of a resource that its content changed."""
        self.publish(updated_topic(uri), {"uri": uri})

    def publish(self, topic: Topic, params: Mapping[str, Any] | None = None) -> None:
        """Publish a change; newer params replace those that are still pending."""
        # A copy under the lock, used without it: a subscriber that is woken may leave, which takes the lock.
        with self._lock:
            subscribers = (*self._streams, *self._conversations)
        for subscriber in subscribers:
            subscriber.put(topic, params or {})
        # the servers that this one is mounted in know the resource by another URI
        if topic.method == UPDATED:
            return
        for outer in self.passed_on:
            outer.publish(topic, params)

    def publish_to(self, conversation: str, topic: Topic, params: Mapping[str, Any]) -> None:
        """Publish something to one legacy conversation, if it is still there."""
        subscriber = self._by_name.get(conversation)
        if subscriber is not None:
            subscriber.topics.add(topic)
            subscriber.put(topic, params)
        for outer in self.passed_on:
            outer.publish_to(conversation, topic, params)

    def watch(self, toolset: Toolset) -> Unsubscribe:
        """Publish every change of a toolset from now on."""
        return toolset.subscribe(lambda change: self.tools_changed())

    def forget_views(self) -> None:
        """Notify legacy conversations of every change again, until they list again: their view may have changed."""
        with self._lock:
            conversations = tuple(self._conversations)
        for conversation in conversations:
            conversation.forget_views()

    # subscribing

    def join(self, push: Push, *, conversation: str) -> Unsubscribe:
        """Subscribe a legacy conversation, on the running event loop.

        Args:
            push: Sends it a notification.
            conversation: Its name, as in `Client.conversation`; resource subscriptions are kept under it.
        """
        joined = LegacySubscriber(push, self.debounce)
        begun = time.monotonic()
        with self._lock:
            self._conversations.add(joined)
            self._by_name[conversation] = joined

        def leave() -> None:
            joined.leave()
            with self._lock:
                was_there = joined in self._conversations
                self._conversations.discard(joined)
                # A conversation that came back under its name has another subscriber, which stays.
                if self._by_name.get(conversation) is joined:
                    del self._by_name[conversation]
            if was_there and self.on_left is not None:
                self.on_left(time.monotonic() - begun)

        return leave

    def note_from_client(self, method: str, client: Client) -> None:
        """Handle a notification of a client in a legacy conversation, such as a change of its roots."""
        if self.on_client_notification is not None:
            self.on_client_notification(method, client)

    def conversation(self, name: str | None) -> LegacySubscriber | None:
        """Return the subscribed conversation of this name, or None."""
        if name is None:
            return None
        return self._by_name.get(name)

    def hear(self, conversation: str | None, name: str) -> None:
        """Notify a legacy conversation of the changes of lists that are also published under this name."""
        subscriber = self.conversation(conversation)
        if subscriber is not None:
            subscriber.topics.update(Topic(one.method, name) for one in (TOOLS, PROMPTS, RESOURCES))

    def open(self, topics: Iterable[Topic], *, principal: str | None = None) -> ListenStream:
        """Open a modern stream on the running event loop; to be ended by `leave`.

        When too many are open, the principal that has the most loses its oldest one to a principal that has less.

        Args:
            topics: Its topics.
            principal: Its client's principal, or None.

        Raises:
            RequestError: Too many are open, and no principal has more of them than this one.
        """
        with self._lock:
            if len(self._streams) >= self._max_streams:
                self._make_room(principal)
            stream = ListenStream(topics)
            self._streams[stream] = principal
        return stream

    def _make_room(self, principal: str | None) -> None:
        # Fair by count: room is made only by a principal that still has as many as the newcomer afterwards. Otherwise
        # two principals would end one another's streams in turn.
        numbers = Counter(self._streams.values())
        largest, number = numbers.most_common(1)[0]
        if number <= numbers[principal] + 1:
            data = {"retryable": True, "retryAfterMs": 1000}
            raise RequestError("too many listen streams are open; try again later", code=INTERNAL_ERROR, data=data)
        oldest = next(stream for stream, owner in self._streams.items() if owner == largest)
        del self._streams[oldest]
        oldest.end()

    def leave(self, stream: ListenStream) -> None:
        """Forget a stream."""
        with self._lock:
            self._streams.pop(stream, None)

    def close(self) -> None:
        """End every stream gracefully, for a shutdown; the requests that opened them then answer their clients."""
        with self._lock:
            streams = tuple(self._streams)
        for stream in streams:
            stream.end()
