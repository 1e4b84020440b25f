"""The upstreams as each caller sees them: by the connections of the hub, or by those that it reaches instead.

A caller with a handshake reaches an upstream of both eras on a second connection, and a caller that can be asked has
its own connections. Each may be another process, with other tools, prompts and resources. Callers see the lists of the
connection that they reach. Their requests are routed and judged by these lists, and their subscriptions are
made there. Exposed names, filters, pins and rules are those of the upstream, whichever connection a definition comes
from.

A connection counts while it is usable. Before it is open, while it restarts and after it has ended, its callers see
the connection that they shared before. What they see differently by that is announced to them, and to no others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

import anyio

from toolweave.connect import McpConnection
from toolweave.gateway._relay.connections import AskingConnections, Owner, OwnerChange, owner_of
from toolweave.gateway._relay.handshake_connections import UNANNOUNCED, AnnouncedChange, HandshakeConnections
from toolweave.gateway._relay.routes import Routes
from toolweave.hub import Hub
from toolweave.hub._events import HubEventName
from toolweave.hub._hub import hub_tools, offer_names
from toolweave.hub._naming import NamedServer
from toolweave.hub._offers import HubEntry, HubList, HubListKind, HubOffers
from toolweave.hub._starting import USABLE
from toolweave.protocol import methods
from toolweave.serve import Client
from toolweave.serve._changes import Changes, Topic
from toolweave.tools import (
    BaseToolset,
    CallContext,
    ToolCall,
    ToolResult,
    ToolsChanged,
    Toolset,
    ToolSnapshot,
    ToolSpec,
    WrapperToolset,
)

_log = logging.getLogger("toolweave.gateway")

NOTIFICATIONS: Mapping[HubListKind, str] = {
    "prompts": methods.NOTIFICATIONS_PROMPTS_LIST_CHANGED,
    "resources": methods.NOTIFICATIONS_RESOURCES_LIST_CHANGED,
    "resourceTemplates": methods.NOTIFICATIONS_RESOURCES_LIST_CHANGED,
}
_LIST_EVENTS: Sequence[HubEventName] = ("prompts_changed", "resources_changed", "state")
"""The events of a hub after which its lists may be others; a change of its tools is announced to all callers."""
_DEBOUNCE_SECONDS = 0.05
HANDSHAKE = "handshake"
"""The name under which changes are announced to the callers with a handshake that share a connection."""

Instead = Callable[[McpConnection], McpConnection | None]
"""Returns the usable connection that callers reach instead of one of the hub; None if they reach that."""


class ReachedConnections(Mapping[str, McpConnection]):
    """The connections of a hub as some callers reach them; a live view.

    Args:
        shared: The connections of the hub.
        instead: Returns the connection that is reached instead of one of these, or None.
    """

    def __init__(self, shared: Mapping[str, McpConnection], instead: Instead) -> None:
        self._shared = shared
        self._instead = instead

    def __getitem__(self, name: str) -> McpConnection:
        shared = self._shared[name]
        return self._instead(shared) or shared

    def __iter__(self) -> Iterator[str]:
        return iter(self._shared)

    def __len__(self) -> int:
        return len(self._shared)


class ReachedTools(BaseToolset):
    """The tools of a hub as some callers reach them: those of other connections in place of those of the hub.

    Args:
        hub: The hub.
        clients: The connections that are reached.
    """

    def __init__(self, hub: Hub, clients: Mapping[str, McpConnection]) -> None:
        self._hub = hub
        self._tools = hub_tools(hub)
        self._clients = clients
        self._named: dict[McpConnection, NamedServer] = {}
        self._made_of: tuple[ToolSnapshot, Sequence[ToolSnapshot]] | None = None
        self._snapshot = ToolSnapshot()

    def snapshot(self) -> ToolSnapshot:
        """Return the tools; the same object while nothing has changed."""
        whole = self._hub.snapshot()
        shared = self._hub.clients
        others = {name: one for name, one in self._clients.items() if one is not shared[name]}
        # Compared by identity: a connection keeps the snapshot object of an unchanged list.
        made_of = (whole, [one.snapshot() for one in others.values()])
        if self._made_of is None or not _same(self._made_of, made_of):
            self._snapshot = self._made(whole, others) if others else whole
            self._made_of = made_of
        return self._snapshot

    def _made(self, whole: ToolSnapshot, others: Mapping[str, McpConnection]) -> ToolSnapshot:
        before = self._named
        self._named = {}
        specs: list[ToolSpec] = []
        for name in self._hub.clients:
            other = others.get(name)
            if other is None:
                specs += self._tools.named(name).specs.values()
                continue
            named = self._named[other] = self._tools.named_like(other, before.get(other, NamedServer()))
            specs += named.specs.values()
        return ToolSnapshot(specs, version=whole.version)

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Run one tool by the hub; see `Toolset.call`. A gateway relays calls and does not use it."""
        return await self._hub.call(call, ctx)


def _same(one: tuple[ToolSnapshot, Sequence[ToolSnapshot]], other: tuple[ToolSnapshot, Sequence[ToolSnapshot]]) -> bool:
    if one[0] is not other[0] or len(one[1]) != len(other[1]):
        return False
    return all(mine is theirs for mine, theirs in zip(one[1], other[1], strict=True))


def rebased(toolset: Toolset, base: Toolset, other: Toolset) -> Toolset:
    """Return a view of one toolset as the same view of another one.

    Args:
        toolset: The view: `base` itself, or wrappers around it. Wrappers that cannot be copied stay as they are.
        base: The toolset that it is a view of.
        other: The toolset that the result is a view of.
    """
    if toolset is base:
        return other
    if not isinstance(toolset, WrapperToolset):
        return toolset
    inner = [rebased(one, base, other) for one in toolset.wrapped]
    if all(mine is theirs for mine, theirs in zip(inner, toolset.wrapped, strict=True)):
        return toolset
    return toolset.around(*inner) or toolset


class Perspective:
    """The upstreams as some callers see them.

    Attributes:
        name: The name under which changes are announced to these callers; `""` for all callers.
        hub: The upstreams.
        clients: The connections that they reach, by upstream.
        tools: The tools that they are listed.
        offers: The prompts, resources and templates that they are listed.
        routes: Finds upstreams by the names in these lists.
        seen: The other lists as these callers know them, by kind; those that were never listed are not in it.
        seen_tools: The tools as these callers know them, or None.
        announced: Notifications of servers that are passed on even if no difference can be seen.
        apart: The upstreams that these callers reached by another connection than that of the hub at the last review.
        announced_to_all: The lists whose changes at the connections of the hub are announced to all callers, since
            these callers read them last.
    """

    def __init__(self, name: str, hub: Hub, clients: Mapping[str, McpConnection], tools: Toolset) -> None:
        self.name = name
        self.hub = hub
        self.clients = clients
        self.tools = tools
        self.offers: HubOffers = HubOffers(clients, offer_names(hub), hub.clients)
        self.routes: Routes = Routes(hub, tools, self.offers)
        self.seen: dict[HubListKind, tuple[HubEntry, ...]] = {}
        self.seen_tools: ToolSnapshot | None = None
        self.announced: set[str] = set()
        self.apart: frozenset[str] = frozenset()
        self.announced_to_all: set[HubListKind] = set()
        self.reviewing = False
        self.due = False

    def inherit(self, other: Perspective) -> None:
        """Note that these callers know the lists of another perspective, where they have not seen their own."""
        inherited = other.seen.keys() - self.seen.keys()
        self.announced_to_all |= other.announced_to_all & inherited
        self.seen = {**other.seen, **self.seen}
        if self.seen_tools is None:
            self.seen_tools = other.tools.snapshot()


class Perspectives:
    """Finds the perspective of a caller, and announces changes to the callers of each.

    Args:
        hub: The upstreams.
        tools: The tools that callers see: the hub, or a view of it.
        connections: The connections that callers have of their own.
        handshakes: The connections in the handshake era to upstreams that speak both.
        changes: Publishes the changes.
        stands_in: Returns whether callers see one upstream as it is, so that its announcements are passed on.

    Attributes:
        shared: The perspective of callers that reach the connections of the hub.
        handshake: The perspective of callers with a handshake that have no connections of their own.
        on_reviewed: Called after each review of a perspective, with the owner of its connections if there is one.
    """

    def __init__(
        self,
        hub: Hub,
        tools: Toolset,
        *,
        connections: AskingConnections,
        handshakes: HandshakeConnections,
        changes: Changes,
        stands_in: Callable[[], bool],
    ) -> None:
        self._hub = hub
        self._tools = tools
        self._connections = connections
        self._handshakes = handshakes
        self._changes = changes
        self._stands_in = stands_in
        self._own: dict[Owner, Perspective] = {}
        self._due: dict[Owner | None, Perspective] = {}
        self._wake = anyio.Event()
        self.shared: Perspective = Perspective("", hub, hub.clients, tools)
        self.handshake: Perspective = self._made(HANDSHAKE, handshakes.known)
        self.on_reviewed: Callable[[Owner | None], Awaitable[None]] | None = None

    def _made(self, name: str, instead: Instead) -> Perspective:
        clients = ReachedConnections(self._hub.clients, instead)
        return Perspective(name, self._hub, clients, rebased(self._tools, self._hub, ReachedTools(self._hub, clients)))

    def of(self, client: Client) -> Perspective:
        """Return the perspective of a caller."""
        if self._own or len(self._connections):
            owner = owner_of(client)
            if owner is not None and self._connections.is_owner(owner):
                return self._of_owner(owner)
        return self._of_others(client.modern)

    def _of_others(self, modern: bool) -> Perspective:
        """Return the perspective of callers without connections of their own."""
        if modern or not any(self._handshakes):
            return self.shared
        return self.handshake

    def _of_owner(self, owner: Owner) -> Perspective:
        found = self._own.get(owner)
        if found is None:
            found = self._own[owner] = self._made(f"own {owner}", partial(self._own_instead, owner))
            found.inherit(self._of_others(owner.modern))
        return found

    def _own_instead(self, owner: Owner, shared: McpConnection) -> McpConnection | None:
        own = self._connections.first(owner, shared.config)
        if own is not None and own.connection.state in USABLE:
            return own.connection
        if owner.modern:
            return None
        return self._handshakes.known(shared)

    def topics(self, client: Client) -> Sequence[str]:
        """Return the names under which changes are announced to a caller, beside those for all callers."""
        owner = owner_of(client)
        own = () if owner is None else (f"own {owner}",)
        if client.modern:
            return own
        return (*own, HANDSHAKE)

    def attend(self, client: Client) -> Perspective:
        """Return the perspective of a caller, whose conversation is notified of its changes from now on."""
        for name in () if client.conversation is None else self.topics(client):
            self._changes.hear(client.conversation, name)
        return self.of(client)

    def find_tool(self, name: str) -> ToolSpec | None:
        """Return the definition of a tool that any caller sees under this name, or None."""
        perspectives = (self.shared, self.handshake, *self._own.values())
        found = (one.tools.snapshot().find(name) for one in perspectives)
        return next((spec for spec in found if spec is not None), None)

    # changes

    async def listed(self, perspective: Perspective, kind: HubListKind) -> tuple[HubList, bool]:
        """Return a list, and whether it differs from the one that its callers know; they know this one from now on.

        Differences that are announced to all callers do not count.
        """
        found = await perspective.offers.listed(kind)
        before = perspective.seen.get(kind)
        perspective.seen[kind] = found.entries
        if perspective is self.shared and before is None:
            self._note_first_reading(kind, found.entries)
        is_announced_to_all = perspective is not self.shared and kind in perspective.announced_to_all
        # A list of the hub is compared with the one before. Its first reading has none before it, and nobody is
        # notified of a difference from it.
        if kind in self.shared.seen:
            perspective.announced_to_all.add(kind)
        if before is None or before is found.entries or before == found.entries:
            return found, False
        if not is_announced_to_all:
            return found, True
        apart = perspective.apart | self._apart(perspective)
        return found, _entries_of(before, apart) != _entries_of(found.entries, apart)

    def _note_first_reading(self, kind: HubListKind, entries: Sequence[HubEntry]) -> None:
        """Note the first reading of a list of the hub, whose changes are announced to all callers from now on.

        Others may have read theirs before. Where both have the same entries of the hub's connections, these callers
        must not be notified of the next change a second time by a review.
        """
        for owner, perspective in ((None, self.handshake), *self._own.items()):
            known = perspective.seen.get(kind)
            if known is None:
                continue
            shared = self._hub.clients.keys() - perspective.apart - self._apart(perspective)
            if _entries_of(known, shared) == _entries_of(entries, shared):
                perspective.announced_to_all.add(kind)
            else:
                self._note(owner, perspective, None)

    async def watch(self) -> None:
        """Announce changes that callers see on connections other than the hub's, until cancelled."""
        loop = asyncio.get_running_loop()

        def note_shared(connection: McpConnection, change: object) -> None:
            loop.call_soon_threadsafe(self._note_handshake)  # the hub may run in another thread

        # An event belongs to one event loop, and a gateway may be opened again in another one.
        self._wake = anyio.Event()
        if self._due:
            self._wake.set()
        ends = (
            self._connections.listen(self._note_own),
            self._handshakes.listen(self._note_handshake),
            *(self._hub.on(event, note_shared) for event in _LIST_EVENTS),
        )
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    await self._wake.wait()
                    self._wake = anyio.Event()
                    due = self._due
                    self._due = {}
                    for owner, perspective in due.items():
                        perspective.due = True
                        if not perspective.reviewing:  # else the review that runs begins again
                            perspective.reviewing = True
                            tasks.start_soon(self._reviewed, owner, perspective)
        finally:
            for end in ends:
                end()

    def _note_own(self, change: OwnerChange) -> None:
        perspective = self._own.get(change.owner)
        if perspective is not None:
            self._note(change.owner, perspective, change.method)

    def _note_handshake(self, change: AnnouncedChange = UNANNOUNCED) -> None:
        """Note a change of connections that several callers share, which those with connections of their own see."""
        self.handshake.inherit(self.shared)
        self._note(None, self.handshake, change.method)
        for owner, perspective in self._own.items():
            self._note(owner, perspective, None)

    def _note(self, owner: Owner | None, perspective: Perspective, announced: str | None) -> None:
        if announced is not None and self._stands_in():
            perspective.announced.add(announced)
        self._due[owner] = perspective
        self._wake.set()

    def note_leased(self, client: Client) -> None:
        """Note that a connection of a caller's own is open, whose lists the caller sees from now on."""
        owner = owner_of(client)
        if owner is not None and self._connections.is_owner(owner):
            self.attend(client)
            self._note(owner, self._of_owner(owner), None)

    async def _reviewed(self, owner: Owner | None, perspective: Perspective) -> None:
        try:
            while perspective.due:
                await anyio.sleep(_DEBOUNCE_SECONDS)
                perspective.due = False
                await self._review(owner, perspective)
        finally:
            perspective.reviewing = False

    async def _review(self, owner: Owner | None, perspective: Perspective) -> None:
        """Compare the lists of a perspective with those that its callers know, and announce the differences."""
        try:
            differs = perspective.announced
            perspective.announced = set[str]()
            if differs:  # a list is read before its change is announced
                await perspective.offers.refresh_tools()
            was_apart = perspective.apart
            apart = self._apart(perspective)
            if self._differs_in_tools(perspective, was_apart, apart):
                differs.add(methods.NOTIFICATIONS_TOOLS_LIST_CHANGED)
            for kind in tuple(perspective.seen):
                _, is_other = await self.listed(perspective, kind)
                if is_other:
                    differs.add(NOTIFICATIONS[kind])
            perspective.apart = apart
            # What those see who reach the connections of the hub alone was announced to all callers.
            for method in sorted(differs) if was_apart or apart else ():
                self._changes.publish(Topic(method, perspective.name))
            if self.on_reviewed is not None:
                await self.on_reviewed(owner)
        except Exception:  # boundary: one upstream's oddity must not end the notifications of all others
            _log.exception("the lists of a caller could not be compared")
        if owner is not None and not self._connections.is_owner(owner):
            self._own.pop(owner, None)

    def _differs_in_tools(self, perspective: Perspective, was_apart: frozenset[str], apart: frozenset[str]) -> bool:
        """Note the tools of a perspective, and return whether its callers were not notified of a difference.

        Changes of the tools of the hub are announced to all callers. So for an upstream that these callers reached by
        the connection of the hub until now, the tools of the hub are those that they know.
        """
        known = perspective.seen_tools
        now = perspective.tools.snapshot()
        perspective.seen_tools = now
        if known is None:
            return False
        shared = self.shared.tools.snapshot()
        before = {**_tools_of(shared, apart - was_apart), **_tools_of(known, was_apart)}
        return bool(ToolsChanged.of(before, _tools_of(now, apart | was_apart), version=now.version))

    def _apart(self, perspective: Perspective) -> frozenset[str]:
        """Return the upstreams that the callers of a perspective reach by another connection than that of the hub."""
        shared = self._hub.clients
        return frozenset(name for name, one in perspective.clients.items() if one is not shared.get(name))


def _tools_of(snapshot: ToolSnapshot, servers: Collection[str]) -> dict[str, ToolSpec]:
    return {spec.name: spec for spec in snapshot if spec.server in servers}


def _entries_of(entries: Sequence[HubEntry], servers: Collection[str]) -> list[HubEntry]:
    return [entry for entry in entries if entry.server in servers]
