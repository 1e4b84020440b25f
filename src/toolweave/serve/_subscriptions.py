"""Subscriptions of clients: `subscriptions/listen` (SEP-2575), and resource subscriptions in revisions before it.

A server feature on top of `changes.py`. Declares no capability: it honours those that the other features
declare.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import anyio

from toolweave._json_types import as_array, object_or_empty
from toolweave.errors import RequestError
from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from toolweave.protocol.meta import SUBSCRIPTION_ID
from toolweave.protocol.subscriptions import LIST_FILTERS, RESOURCE_SUBSCRIPTIONS
from toolweave.serve._changes import (
    PROMPTS,
    RESOURCES,
    TOOLS,
    Changes,
    LegacySubscriber,
    ListenStream,
    Topic,
    updated_topic,
)
from toolweave.serve.request import Json, Method, Request
from toolweave.tools import Unsubscribe

ACKNOWLEDGED = methods.NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED
LISTS = {
    LIST_FILTERS["tools"]: ("tools", TOOLS),
    LIST_FILTERS["prompts"]: ("prompts", PROMPTS),
    LIST_FILTERS["resources"]: ("resources", RESOURCES),
}
"""The filters for list changes: the capability that must be declared, and the topic."""
MAX_NAMES = 1000
"""Maximum resources, and maximum names in an extension's filter, of one client."""

MAX_URI = 8192
"""Maximum length of a subscribed URI, in characters."""

FOLLOWED_AT_ONCE = 32
"""Resources of one client that are subscribed to at the same time."""

_Watch: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


class ExtensionFilter(Protocol):
    """A filter that an extension adds, such as the ids of tasks."""

    method: str
    """The notification that passes the filter."""

    async def current(self, request: Request, names: Sequence[str]) -> Mapping[str, Json]:
        """Return the current params of the notification for each of these names that this client may see.

        Raises:
            RequestError: The client may not use the filter.
        """
        ...

    async def watch(self, known: Mapping[str, Json], changed: Callable[[str, Json], None], /) -> None:
        """Poll for changes made by other processes while a listen stream is open.

        Args:
            known: The result of `current`.
            changed: Called with the changed name and the params of the notification.
        """
        ...


ListView: TypeAlias = Callable[[Request, str], object]


class ResourceFollower(Protocol):
    """Subscribes to resources where they are, for a server in front of others."""

    async def follow(self, request: Request, uri: str, updated: Callable[[str], object]) -> Unsubscribe:
        """Subscribe to a resource; return a function that unsubscribes.

        Args:
            request: The client's request.
            uri: The resource.
            updated: To be called with the URI after each update of the resource or a part of it, from any thread.

        Raises:
            RequestError: Its updates are not announced to this client.
        """
        ...


class Listen:
    """The listen streams and the resource subscriptions of all clients.

    Args:
        declared: Returns the capabilities that the server declares now.
        handshake_declared: The same for clients with a handshake; None if they are the same.
        filters: Filters of extensions, by their key.
        follower: Subscribes to the resources where they are; None where all changes are published here.
        view: Returns a client's view of a list, by the notification of its changes; a client that does not see all
            is notified only when that differs. None notifies of every change.
        own: Returns the names under which changes of a client's own lists are published; those without a name are
            for all clients.
    """

    def __init__(
        self,
        changes: Changes,
        *,
        declared: Callable[[], Mapping[str, Any]],
        handshake_declared: Callable[[], Mapping[str, Any]] | None = None,
        filters: Mapping[str, ExtensionFilter] | None = None,
        follower: ResourceFollower | None = None,
        view: ListView | None = None,
        own: Callable[[Request], Sequence[str]] | None = None,
    ) -> None:
        self._changes = changes
        self._declared = declared
        if handshake_declared is None:
            self._handshake_declared = declared
        else:
            self._handshake_declared = handshake_declared
        self._filters = dict(filters or {})
        self._follower = follower
        self._view = view
        self._own = own

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return `subscriptions/listen`, or in earlier revisions the subscriptions to resources."""
        if modern:
            return {methods.SUBSCRIPTIONS_LISTEN: self._listen}
        return {methods.RESOURCES_SUBSCRIBE: self._subscribe, methods.RESOURCES_UNSUBSCRIBE: self._unsubscribe}

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """Return nothing: each list's own feature declares `listChanged`."""
        return {}

    async def _listen(self, request: Request) -> Json:
        wanted = request.object("notifications")
        if "notifications" not in request.params:
            raise RequestError("subscriptions/listen needs the object 'notifications'", code=INVALID_PARAMS)
        honoured, topics = self._honoured_filters(wanted)
        mine = () if self._own is None else self._own(request)
        topics += [Topic(topic.method, name) for topic in topics if not topic.name for name in mine]
        asked = {key: _names(wanted, key) for key in self._filters if key in wanted}
        for key, names in asked.items():
            topics += [Topic(self._filters[key].method, name) for name in names]
        # before the lists are read, so that no change is missed
        stream = self._changes.open(topics, principal=request.client.principal)
        ends: list[Unsubscribe] = []
        try:
            await self._follow(request, stream, honoured, ends)
            watches: list[_Watch] = []
            for key, names in asked.items():
                chosen = self._filters[key]
                current = await self._admit(request, stream, chosen, names)
                honoured[key] = [name for name in names if name in current]
                if current:
                    watches.append(partial(chosen.watch, current, partial(_put, stream, chosen.method)))
            await self._watched(request, stream, honoured, watches)
        finally:
            self._changes.leave(stream)
            for end in ends:
                end()
        return {"_meta": {SUBSCRIPTION_ID: request.id}}

    async def _follow(self, request: Request, stream: ListenStream, honoured: Json, ends: list[Unsubscribe]) -> None:
        """Limit the stream to the resources whose updates are announced; their unsubscribers are added to `ends`."""
        uris: list[str] = honoured.pop(RESOURCE_SUBSCRIPTIONS, [])
        follower = self._follower
        accepted = set[str](uris if self._follower is None else ())
        limiter = anyio.CapacityLimiter(FOLLOWED_AT_ONCE)

        async def one(uri: str) -> None:
            assert follower is not None
            async with limiter:
                try:
                    ends.append(await follower.follow(request, uri, partial(_updated, stream, uri)))
                except RequestError:
                    stream.topics.discard(updated_topic(uri))
                else:
                    accepted.add(uri)

        if follower is not None:
            async with anyio.create_task_group() as tasks:
                for uri in uris:
                    tasks.start_soon(one, uri)
        if accepted:
            honoured[RESOURCE_SUBSCRIPTIONS] = [uri for uri in uris if uri in accepted]

    async def _watched(self, request: Request, stream: ListenStream, honoured: Json, watches: Sequence[_Watch]) -> None:
        """Deliver notifications while polling for changes made by other processes."""
        if not watches:
            await self._deliver(request, stream, honoured)
            return
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            for watch in watches:
                tasks.start_soon(watch)
            try:
                await self._deliver(request, stream, honoured)
            except Exception as exc:  # boundary: kept out of the task group, which would wrap it
                failure = exc
            tasks.cancel_scope.cancel()  # the watches have no end of their own
        if failure is not None:
            raise failure

    def _honoured_filters(self, wanted: Json) -> tuple[Json, list[Topic]]:
        """Return the core filters that the server can honour, and their topics."""
        declared = self._declared()
        honoured: Json = {}
        topics: list[Topic] = []
        for key, (capability, topic) in LISTS.items():
            if _flag(wanted, key) and _offers(declared, capability, "listChanged"):
                honoured[key] = True
                topics.append(topic)
        uris = _names(wanted, RESOURCE_SUBSCRIPTIONS)
        if uris and _offers(declared, "resources", "subscribe"):
            honoured[RESOURCE_SUBSCRIPTIONS] = uris
            topics += list(map(updated_topic, uris))
        return honoured, topics

    async def _admit(
        self, request: Request, stream: ListenStream, chosen: ExtensionFilter, names: list[str]
    ) -> Mapping[str, Json]:
        """Limit the stream to the names that the client may see, and send their current params."""
        current = await chosen.current(request, names)
        for name in names:
            topic = Topic(chosen.method, name)
            if name in current:
                stream.put(topic, current[name], newest=False)
            else:
                stream.topics.discard(topic)
        return current

    async def _deliver(self, request: Request, stream: ListenStream, honoured: Json) -> None:
        stamp = {SUBSCRIPTION_ID: request.id}
        await request.reply_channel.notify(ACKNOWLEDGED, {"notifications": honoured, "_meta": stamp})
        # Compared with the views at the beginning of the stream: what the client lists later is at least as new.
        seen = self._views(request, honoured)
        ended = False
        while not ended:
            await stream.wait()
            ended = stream.ended  # before the last changes are taken
            if not ended:
                await anyio.sleep(self._changes.debounce)
            for change in stream.take():
                if self._is_seen(request, seen, change.method):
                    await request.reply_channel.notify(change.method, {**change.params, "_meta": stamp})

    def _views(self, request: Request, honoured: Json) -> dict[str, object]:
        """Return the views of the lists that a client with limited rights listens to, by notification."""
        if self._view is None or request.client.may is None:
            return {}
        listened = [topic.method for key, (_, topic) in LISTS.items() if key in honoured]
        return {method: self._view(request, method) for method in listened}

    def _is_seen(self, request: Request, seen: dict[str, object], method: str) -> bool:
        """Return whether to notify a client of a change: its view differs from the stored one, which it replaces."""
        if self._view is None or method not in seen:
            return True
        before = seen[method]
        seen[method] = self._view(request, method)
        return before != seen[method]

    async def _subscribe(self, request: Request) -> Json:
        conversation, uri = self._subscription(request)
        topic = updated_topic(uri)
        if len(conversation.topics) >= MAX_NAMES and topic not in conversation.topics:
            raise RequestError(f"no more than {MAX_NAMES} resources can be subscribed to", code=INVALID_REQUEST)
        # Before it is asked for elsewhere: an update that arrives between the two is not lost.
        conversation.topics.add(topic)
        if self._follower is not None:
            try:
                end = await self._follower.follow(request, uri, partial(_updated, conversation, uri))
            except BaseException:
                # Unless another request has subscribed to it meanwhile: the topic is that one's now.
                if not conversation.follows(uri):
                    conversation.topics.discard(topic)
                raise
            conversation.follow(uri, end)
        return {}

    async def _unsubscribe(self, request: Request) -> Json:
        conversation, uri = self._subscription(request)
        conversation.unfollow(uri)
        return {}

    def _subscription(self, request: Request) -> tuple[LegacySubscriber, str]:
        if not _offers(self._handshake_declared(), "resources", "subscribe"):
            raise RequestError("Method not found", code=METHOD_NOT_FOUND, data=request.method)
        uri = request.text("uri")
        if len(uri) > MAX_URI:
            raise RequestError(f"the URI of a resource has at most {MAX_URI} characters", code=INVALID_PARAMS)
        conversation = self._changes.conversation(request.client.conversation)
        if conversation is None:
            raise RequestError("updates cannot be sent on this connection, which has no stream", code=INVALID_REQUEST)
        return conversation, uri


def _updated(subscriber: ListenStream | LegacySubscriber, uri: str, part: str) -> None:
    subscriber.put(updated_topic(uri), {"uri": part})


def _put(stream: ListenStream, method: str, name: str, params: Json) -> None:
    stream.put(Topic(method, name), params)


def _offers(declared: Mapping[str, Any], capability: str, member: str) -> bool:
    return object_or_empty(declared.get(capability)).get(member) is True


def _flag(wanted: Json, key: str) -> bool:
    value = wanted.get(key, False)
    if not isinstance(value, bool):
        raise RequestError(f"'notifications.{key}' must be a boolean", code=INVALID_PARAMS)
    return value


def _names(wanted: Json, key: str) -> list[str]:
    items = as_array(wanted.get(key, []))
    names = [] if items is None else [item for item in items if isinstance(item, str)]
    if items is None or len(names) < len(items) or len(names) > MAX_NAMES:
        raise RequestError(f"'notifications.{key}' must be at most {MAX_NAMES} strings", code=INVALID_PARAMS)
    return list(dict.fromkeys(names))
