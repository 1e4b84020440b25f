"""The lists of a gateway: the tools, prompts, resources and templates of all upstreams, page by page.

Definitions go out as they came, under exposed names. A failing upstream costs only its own entries, and callers can
read the status of each. A list is as fresh, and as widely shareable, as the strictest of the upstreams in it allows.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias

import anyio

from toolweave._json_types import object_or_empty
from toolweave.connect import ConnectionState, McpConnection
from toolweave.connect._feed.list_cache import ListFacts, ListKind
from toolweave.errors import DuplicateToolError, ServerError
from toolweave.gateway._callers.perspectives import NOTIFICATIONS, Perspective, Perspectives
from toolweave.gateway._features.capabilities import require_offered
from toolweave.hub import Hub
from toolweave.hub._offers import HubEntry, HubListKind
from toolweave.hub._starting import USABLE
from toolweave.protocol import methods
from toolweave.protocol.apps import page_uri
from toolweave.protocol.resource_uris import with_uris
from toolweave.protocol.subscriptions import LIST_CHANGED
from toolweave.protocol.versions import MODERN_VERSIONS
from toolweave.serve import Request
from toolweave.serve._changes import Changes, Topic
from toolweave.serve._offers.pagination import DEFAULT_PAGE_SIZE, list_page
from toolweave.serve._offers.tool_pages import ToolPages
from toolweave.serve.request import Json, Method, OfferKind, may_use
from toolweave.tools import ToolsChanged, ToolSnapshot, ToolSpec

_log = logging.getLogger("toolweave.gateway")

UPSTREAMS = "io.toolweave/upstreams"
"""The key in the `_meta` of a list with the status of each upstream, by name."""

_CAPABILITIES: Mapping[str, OfferKind] = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "resourceTemplates": "resources",
}
_KEY_MEMBERS: Mapping[HubListKind, str] = {"prompts": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}
"""The member that names an entry of a list."""
_DEBOUNCE_SECONDS = 0.05
_ANNOUNCE_SECONDS = 1.0
_Facts: TypeAlias = Mapping[str, ListFacts[Any]]
_Errors: TypeAlias = Mapping[str, Exception]


class Lists:
    """The feature: all lists, and the notifications that one has changed.

    Args:
        hub: The upstreams.
        perspectives: The lists as callers see them.
        changes: Publishes the changes, also those of the tools.
        support: Returns the members of a tool's definition that declare its task support in an era, modern or not.
        page_size: Entries on a page; None puts all on one.
        seen: Returns a caller's view of a list, by the notification of its changes; with None a session is notified of
            each change.
        stands_in: Returns whether callers see one upstream as it is; its announcements are then passed on, even if no
            difference can be seen.
    """

    def __init__(
        self,
        hub: Hub,
        perspectives: Perspectives,
        changes: Changes,
        *,
        support: Callable[[ToolSpec, bool], Json],
        page_size: int | None = DEFAULT_PAGE_SIZE,
        seen: Callable[[Request, str], object] | None = None,
        stands_in: Callable[[], bool] = lambda: False,
    ) -> None:
        self._hub = hub
        self._announcements = _Announcements(stands_in)
        self._seen_by = seen
        self._perspectives = perspectives
        self._shared = perspectives.shared
        self._changes = changes
        self._page_size = page_size
        self._support = support
        self._pages = self._made_pages()
        self._handshake_pages = ToolSnapshot(), self._pages
        self._publish: Mapping[str, Callable[[], None]] = {
            methods.NOTIFICATIONS_TOOLS_LIST_CHANGED: changes.tools_changed,
            methods.NOTIFICATIONS_PROMPTS_LIST_CHANGED: changes.prompts_changed,
            methods.NOTIFICATIONS_RESOURCES_LIST_CHANGED: changes.resources_changed,
        }
        self._shared.tools.subscribe(self._tools_changed)

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return the methods that list."""
        return {
            methods.TOOLS_LIST: self._list_tools,
            methods.PROMPTS_LIST: self._list_prompts,
            methods.RESOURCES_LIST: self._list_resources,
            methods.RESOURCES_TEMPLATES_LIST: self._list_templates,
        }

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """Return nothing: the capabilities are those of the upstreams taken together."""
        return {}

    def view(self, request: Request, notification: str) -> object:
        """Return the caller's view of the list whose changes a notification announces, for comparison."""
        may = request.client.may
        perspective = self._perspectives.of(request.client)
        if notification == methods.NOTIFICATIONS_TOOLS_LIST_CHANGED:
            specs = perspective.tools.snapshot()
            return [one for one in specs if may_use(may, "tools", one.name, one.scopes, one.server)]
        kinds: tuple[HubListKind, ...] = ("prompts",)
        if notification == methods.NOTIFICATIONS_RESOURCES_LIST_CHANGED:
            kinds = ("resources", "resourceTemplates")
        found: list[object] = []
        for kind in kinds:
            noun = _CAPABILITIES[kind]
            entries = perspective.seen.get(kind, ())
            found.extend(one for one in entries if may_use(may, noun, one.name, server=one.server))
        return found

    async def watch(self) -> None:
        """Notify of changed lists of prompts, resources and templates, until cancelled.

        A list that may have changed is read again; a difference in what callers see is published.
        """
        announcements = self._announcements
        loop = asyncio.get_running_loop()
        news = [anyio.Event()]
        due = set[HubListKind]()

        def read_again(*kinds: HubListKind) -> None:
            def note() -> None:
                due.update(kinds)
                wake()

            loop.call_soon_threadsafe(note)  # the hub may run in another thread

        def wake() -> None:
            news[0].set()

        def announced(one: McpConnection, notification: tuple[str, Mapping[str, Any]]) -> None:
            if announcements.add(notification[0]):
                loop.call_soon_threadsafe(wake)

        ends = (
            self._hub.on("notification", announced),
            self._hub.on("prompts_changed", lambda one, change: read_again("prompts")),
            self._hub.on("resources_changed", lambda one, change: read_again(*_without_tools(change.kind))),
            self._hub.on("state", lambda one, change: read_again(*NOTIFICATIONS)),
        )
        try:
            while True:
                await news[0].wait()
                # An upstream that starts or restarts changes several lists at once: they are read once.
                await anyio.sleep(_DEBOUNCE_SECONDS)
                # Replaced before the lists are read: a change that arrives during that is read afterwards.
                news[0] = anyio.Event()
                kinds = sorted(due)
                due.clear()
                for kind in kinds:
                    await self._read_again(kind)
                for method in announcements.due(later=lambda seconds: loop.call_later(seconds, wake)):
                    await self._pass_on(method)
        finally:
            for end in ends:
                end()

    async def _read_again(self, kind: HubListKind) -> None:
        try:
            await self._listed(self._shared, kind)
        except Exception:  # boundary: one upstream's oddity must not end the notifications of all others
            _log.exception("the list of %s could not be read again", kind)

    async def _pass_on(self, method: str) -> None:
        """Publish an announcement of an upstream after its list was read again, unless the reading published it."""
        if method == methods.NOTIFICATIONS_TOOLS_LIST_CHANGED:
            await self._shared.offers.refresh_tools()
        if self._announcements.is_pending(method):
            self._publish_change(method)

    def _publish_change(self, method: str) -> None:
        self._announcements.published(method)
        self._publish[method]()

    # the methods

    async def _list_tools(self, request: Request) -> Json:
        perspective = self._perspectives.attend(request.client)
        if not len(perspective.tools.snapshot()):
            require_offered(self._hub, "tools", request)
        cursor: Any = request.params.get("cursor")
        # Only for the first page: a list that changes between two pages would skip or repeat entries.
        if cursor is None:
            await perspective.offers.refresh_tools()
        snapshot = perspective.tools.snapshot()
        pages = self._pages_of(perspective, snapshot)
        may = request.client.may
        if may is None:
            found = pages.of(snapshot, cursor, modern=request.modern)
            shown = None
        else:
            # Filtered before it is cut into pages: the size of a page must not show how much was left out.
            allowed = [spec for spec in snapshot if may("tools", spec.name, spec.scopes, spec.server)]
            found = pages.selected(allowed, cursor, modern=request.modern)
            shown = {spec.server for spec in allowed if spec.server is not None}
        self._restrict(request, methods.NOTIFICATIONS_TOOLS_LIST_CHANGED)
        facts = {
            name: one.gateway_side.list_facts("tools")
            for name, one in perspective.clients.items()
            if one.state in USABLE and "tools" in one.capabilities
        }
        return self._completed(request, "tools", found, facts, {}, shown)

    def _made_pages(self) -> ToolPages:
        return ToolPages(self._page_size, more=self._exchanged)

    def _pages_of(self, perspective: Perspective, snapshot: ToolSnapshot) -> ToolPages:
        """Return the pages of a perspective: kept for perspectives that many callers have, new ones for that of one."""
        if perspective is self._shared:
            return self._pages
        if perspective is not self._perspectives.handshake:
            return self._made_pages()
        # By identity: a snapshot is replaced as a whole, and to compare two of them costs more than to make a page.
        if self._handshake_pages[0] is not snapshot:
            self._handshake_pages = snapshot, self._made_pages()
        return self._handshake_pages[1]

    async def _list_prompts(self, request: Request) -> Json:
        return await self._list(request, "prompts")

    async def _list_resources(self, request: Request) -> Json:
        return await self._list(request, "resources")

    async def _list_templates(self, request: Request) -> Json:
        return await self._list(request, "resourceTemplates")

    async def _list(self, request: Request, kind: HubListKind) -> Json:
        require_offered(self._hub, _CAPABILITIES[kind], request)
        entries, facts, errors = await self._listed(self._perspectives.attend(request.client), kind)
        self._restrict(request, NOTIFICATIONS[kind])
        may = request.client.may
        shown = None
        if may is not None:
            entries = tuple(one for one in entries if may(_CAPABILITIES[kind], one.name, (), one.server))
            shown = {one.server for one in entries}
        definitions = [one.definition for one in entries]
        key = itemgetter(_KEY_MEMBERS[kind])
        found = list_page(kind, definitions, request.params.get("cursor"), self._page_size, key=key)
        return self._completed(request, kind, found, facts, errors, shown)

    def _restrict(self, request: Request, notification: str) -> None:
        """Limit the notifications of a legacy caller with restricted rights to changes that it can see."""
        if request.modern:
            conversation = None
        else:
            conversation = self._changes.conversation(request.client.conversation)
        if conversation is not None and self._seen_by is not None:
            view = partial(self._seen_by, request.replace(params={}), notification)
            conversation.restrict(notification, None if request.client.may is None else view)

    async def _listed(
        self, perspective: Perspective, kind: HubListKind
    ) -> tuple[tuple[HubEntry, ...], _Facts, _Errors]:
        """Return a list of all upstreams; a difference from the one before is published."""
        found, differs = await self._perspectives.listed(perspective, kind)
        if differs and perspective is self._shared:
            self._publish_change(NOTIFICATIONS[kind])
        elif differs:
            self._changes.publish(Topic(NOTIFICATIONS[kind], perspective.name))
        return found.entries, found.facts, found.errors

    # the members of a list beside its entries

    def _completed(
        self, request: Request, kind: str, found: Json, facts: _Facts, errors: _Errors, shown: Collection[str] | None
    ) -> Json:
        """Add the members about the list as a whole; `shown` are the upstreams that a restricted caller may see."""
        states = self._hub.states()
        if len(states) == len(facts) == 1:
            alone = next(iter(facts.values()))
        else:
            alone = None
        members: Mapping[str, Any] = (
            {} if alone is None else alone.members
        )  # with several, their owner would be ambiguous
        if request.modern:
            found = {**self._freshness(request, facts, errors), **found}
        found = {**members, **found}
        # On the first page alone: it is about the list, and clients put the pages together.
        if request.params.get("cursor") is None:
            statuses = self._statuses(kind, states, errors, shown)
            found["_meta"] = {**object_or_empty(members.get("_meta")), UPSTREAMS: statuses}
        return found

    def _freshness(self, request: Request, facts: _Facts, errors: _Errors) -> Json:
        """Return the lifetime and the scope of a list (SEP-2549): the strictest of all upstreams in it.

        An upstream that says neither, one that is missing, a view, and rules for this caller make it stale and private.
        """
        whole = not errors and all(state in USABLE for state in self._hub.states().values())
        is_shared = self._perspectives.of(request.client) is self._shared
        same_for_all = is_shared and request.client.may is None and self._shared.tools is self._hub
        declared = bool(facts) and all(self._is_modern(server) for server in facts)
        if not (declared and whole and same_for_all):
            return {"ttlMs": 0, "cacheScope": "private"}
        # One private list makes all of it private: a shared cache would show its entries to other callers.
        public = all(one.public for one in facts.values())
        return {
            "ttlMs": min(one.ttl_ms or 0 for one in facts.values()),
            "cacheScope": "public" if public else "private",
        }

    def _is_modern(self, server: str) -> bool:
        connection = self._hub.clients.get(server)
        return connection is not None and connection.protocol_version in MODERN_VERSIONS

    def _statuses(
        self, kind: str, states: Mapping[str, ConnectionState], errors: _Errors, shown: Collection[str] | None
    ) -> Json:
        """Return the status of each upstream that has such a list, or may have one."""
        statuses: Json = {}
        for server, state in sorted(states.items()):
            usable = state in USABLE
            connection = self._hub.clients.get(server)
            # It has no such list, so its absence says nothing about its health.
            if usable and connection is not None and _CAPABILITIES[kind] not in connection.capabilities:
                continue
            if shown is not None and server not in shown:
                continue
            error = errors.get(server) or self._hub.errors.get(server)
            # Connected, but this list failed: "ready" would let a caller believe that the list is complete.
            if usable and error is not None:
                status = ConnectionState.DEGRADED
            else:
                status = state
            statuses[server] = {"status": status.value} | ({} if error is None else {"error": _kind(error)})
        return statuses

    # tools

    def _exchanged(self, spec: ToolSpec, modern: bool) -> Json:
        """Return the members of a definition that are not its server's: the task support, a page with another URI."""
        made = self._support(spec, modern)
        page = page_uri(spec.meta) if spec.meta else None
        if page is None or spec.server is None:
            return made
        return made | with_uris({"_meta": spec.meta}, {page: self._shared.offers.settled_uri(spec.server, page)})

    def _tools_changed(self, change: ToolsChanged) -> None:
        self._pages.forget(change.removed)
        self._publish_change(methods.NOTIFICATIONS_TOOLS_LIST_CHANGED)


class _Announcements:
    """The changes of lists that an upstream announced and that were not published yet, by notification.

    One of each is passed on in a second: to read a list again costs callers more than to announce it costs a server.

    Args:
        passed_on: Returns whether announcements are passed on now.
    """

    def __init__(self, passed_on: Callable[[], bool]) -> None:
        self._passed_on = passed_on
        self._pending: set[str] = set()
        self._since: dict[str, float] = {}

    def add(self, method: str) -> bool:
        """Add an announcement; False if the notification is something else, or is not passed on."""
        if method not in LIST_CHANGED.values() or not self._passed_on():
            return False
        self._pending.add(method)
        return True

    def due(self, later: Callable[[float], object]) -> list[str]:
        """Return those that may be passed on now; `later` is called with the seconds until others may be."""
        now = anyio.current_time()
        found = list[str]()
        for method in sorted(self._pending):
            wait = self._since.get(method, -math.inf) + _ANNOUNCE_SECONDS - now
            if wait <= 0:
                found.append(method)
            else:
                later(wait)
        return found

    def is_pending(self, method: str) -> bool:
        """Whether an announcement has not been published yet."""
        return method in self._pending

    def published(self, method: str) -> None:
        """Forget the announcement of a change that is being published."""
        if method in self._pending:
            self._pending.discard(method)
            self._since[method] = anyio.current_time()


def _kind(error: Exception) -> str:
    """Return the kind of an upstream's error; its text may reveal more than callers should know."""
    if isinstance(error, ServerError):
        return error.kind.value
    if isinstance(error, DuplicateToolError):
        return "name_conflict"
    return "config"


def _without_tools(kind: ListKind) -> tuple[HubListKind, ...]:
    """Return the list, if it is not that of the tools, whose changes are another event."""
    if kind == "tools":
        return ()
    return (kind,)
