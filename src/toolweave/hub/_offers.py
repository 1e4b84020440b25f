"""The resources and prompts of all servers of a hub under exposed names, with the server of each.

A server that fails costs only its entries that were not known. Knows nothing of the endpoint that serves them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, TypeAlias, cast

import anyio

from toolweave._json_types import Json
from toolweave.config import ServerConfig
from toolweave.config.secret_args import mask_url
from toolweave.connect import McpConnection, ResourceUpdated
from toolweave.connect._feed.list_cache import ListFacts
from toolweave.errors import ProtocolError, ServerError, ToolError
from toolweave.hub._naming import NameConflict, name_others, name_uri, without_server
from toolweave.hub._starting import USABLE
from toolweave.protocol.codes import INVALID_PARAMS, RESOURCE_NOT_FOUND
from toolweave.protocol.content import EmbeddedResource
from toolweave.protocol.server_features import PromptResult
from toolweave.protocol.skills import Skill, skill_settings
from toolweave.protocol.uris import normal_uri
from toolweave.tools import Unsubscribe
from toolweave.tools.names import AssignedNames

_log = logging.getLogger("toolweave.hub")

HubListKind: TypeAlias = Literal["prompts", "resources", "resourceTemplates"]
"""The lists of a hub beside its tools, by the member that holds the entries."""

_UNKNOWN = (INVALID_PARAMS, RESOURCE_NOT_FOUND)
_FOLLOW_SECONDS = 5.0
_LIST_SECONDS = 5.0
"""Seconds that the lists of all others wait for one server; reading that one continues in the background."""

_MAX_SPELLINGS = 100_000
"""Resources that are found by another spelling of their URI than the one in the list."""
_MAX_SKILLS = 20_000
"""Skills whose folders are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ListTraits:
    """Traits of one kind of list: its noun in `OfferNames`, the member that names an entry, the capability."""

    noun: str
    member: str
    capability: str
    # The entries are values with `raw`.
    read: Callable[[McpConnection], Awaitable[Sequence[Any]]]


_TRAITS: Mapping[HubListKind, _ListTraits] = {
    "prompts": _ListTraits(
        noun="prompt",
        member="name",
        capability="prompts",
        read=lambda one: one.list_prompts(timeout=_LIST_SECONDS),
    ),
    "resources": _ListTraits(
        noun="resource",
        member="uri",
        capability="resources",
        read=lambda one: one.list_resources(timeout=_LIST_SECONDS),
    ),
    "resourceTemplates": _ListTraits(
        noun="resource template",
        member="uriTemplate",
        capability="resources",
        read=lambda one: one.list_resource_templates(timeout=_LIST_SECONDS),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HubEntry:
    """One entry of a list.

    Attributes:
        server: The server's name in the config.
        own: The server's own name or URI.
        name: The exposed name or URI.
        definition: The definition as it came, under the exposed name.
    """

    server: str
    own: str
    name: str
    definition: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class HubList:
    """One list of all servers, joined.

    Attributes:
        entries: In the order of the servers and of their own lists; the same object while nothing has changed.
        facts: The server's own lists that are in it, by server.
        errors: The servers that could not be asked now; the last known entries of their session stay.
    """

    entries: tuple[HubEntry, ...]
    facts: Mapping[str, ListFacts[Any]]
    errors: Mapping[str, ServerError]

    @property
    def definitions(self) -> list[Json]:
        """The definitions alone."""
        return [entry.definition for entry in self.entries]


class OfferNames:
    """The exposed names of the prompts, resources and templates of a hub's servers, and the conflicts about them.

    Args:
        on_conflicts: Called with the kind, the server and its conflicts after each naming.
    """

    def __init__(self, on_conflicts: Callable[[str, str, Sequence[NameConflict]], None]) -> None:
        self._given: dict[str, AssignedNames] = {}
        self._conflicts: dict[tuple[str, str], Sequence[NameConflict]] = {}
        self._on_conflicts = on_conflicts
        self._present: dict[tuple[str, str], Collection[str]] = {}
        # Normal forms of resources that are listed in another -> as listed.
        self._spellings: dict[str, str] = {}

    @property
    def conflicts(self) -> Iterator[NameConflict]:
        """The conflicts of all servers there were."""
        return chain.from_iterable(self._conflicts.values())

    def given(self, kind: str) -> AssignedNames:
        """Return the names given to the servers' `"prompt"`s, `"resource"`s or `"resource template"`s."""
        return self._given.setdefault(kind, AssignedNames())

    def give(self, kind: str, config: ServerConfig, names: Iterable[str]) -> dict[str, str]:
        """Map exposed to own names of a server's prompts, resources or templates; see `name_others`."""
        exposed, conflicts = name_others(kind, config, names, self.given(kind))
        self._present[kind, config.name] = tuple(exposed.values())
        self._conflicts[kind, config.name] = conflicts
        self._on_conflicts(kind, config.name, conflicts)
        if kind == "resource":
            self._note_spellings(exposed)
        return exposed

    def give_like(self, kind: str, config: ServerConfig, names: Iterable[str]) -> dict[str, str]:
        """Name the offers of another connection to a server like those of the hub's own connection; see `give`."""
        exposed, _ = name_others(kind, config, names, self.given(kind), self._present.get((kind, config.name), ()))
        if kind == "resource":
            self._note_spellings(exposed)
        return exposed

    def _note_spellings(self, uris: Iterable[str]) -> None:
        for uri in uris:
            normal = normal_uri(uri)
            if normal != uri:
                self._spellings.setdefault(normal, uri)
        while len(self._spellings) > _MAX_SPELLINGS:
            del self._spellings[next(iter(self._spellings))]

    def holder_of_uri(self, uri: str) -> tuple[Hashable, str] | None:
        """Return the server of a resource by its exposed URI in any spelling, with its own URI there, or None."""
        given = self.given("resource")
        normal = normal_uri(uri)
        for spelling in (uri, normal, self._spellings.get(normal)):
            holder = None if spelling is None else given.holder(spelling)
            if holder is not None:
                return holder
        return None


class HubOffers:
    """The resources, resource templates and prompts of a hub's servers.

    Args:
        clients: The connections by server name: the hub's, or those that some callers reach instead; a live view.
        names: The exposed names of the hub.
        shared: The hub's connections, if some of `clients` are others; those leave the hub's warnings as they are.

    Attributes:
        qualified: The exposed URIs of listed resources that are not the servers' own, by server and own URI; another
            object after each change.
    """

    def __init__(
        self,
        clients: Mapping[str, McpConnection],
        names: OfferNames,
        shared: Mapping[str, McpConnection] | None = None,
    ) -> None:
        self._clients = clients
        self._shared = clients if shared is None else shared
        self._names = names
        self._known: dict[HubListKind, tuple[list[tuple[McpConnection, tuple[Any, ...]]], tuple[HubEntry, ...]]] = {}
        self.qualified: Mapping[tuple[str, str], str] = {}
        # The exposed URI of a skill's folder -> server, own URI.
        self._skills: dict[str, tuple[str, str]] = {}

    async def listed(self, kind: HubListKind) -> HubList:
        """Return a list of all servers; one that fails, or is slow, costs only its entries that were not known."""
        traits = _TRAITS[kind]
        asked = self._offering(traits.capability)
        errors = await self._read_each(asked, traits.read)
        facts: dict[str, ListFacts[Any]] = {}
        items: list[tuple[McpConnection, tuple[Any, ...]]] = []
        for one in asked:
            found = one.gateway_side.list_facts(kind)
            if found.listed or one not in errors:
                facts[one.name] = found
                items.append((one, found.items))
        return HubList(
            entries=self._named(kind, items),
            facts=facts,
            errors={one.name: error for one, error in errors.items()},
        )

    async def resources(self) -> list[Json]:
        """Return the definitions of all resources, under their own URIs unless another server's has the same."""
        return (await self.listed("resources")).definitions

    async def templates(self) -> list[Json]:
        """Return the definitions of all resource templates, likewise."""
        return (await self.listed("resourceTemplates")).definitions

    async def prompts(self) -> list[Json]:
        """Return the definitions of all prompts, named as the tools of their servers are."""
        return (await self.listed("prompts")).definitions

    def settled_uri(self, server: str, uri: str) -> str:
        """Return the exposed URI of a server's own, which is settled when it is first seen, listed or not."""
        return name_uri(server, uri, self._names.given("resource"))

    async def skills(self) -> list[tuple[Skill, str]]:
        """Return the skills of all servers, each with the prefix of its URIs in the hub: nothing, or its server.

        The files of a skill keep together: they are read from its server, even if another has a resource of such a URI.
        """
        found: dict[McpConnection, tuple[Skill, ...]] = {}

        async def read(one: McpConnection) -> None:
            found[one] = await one.list_skills(timeout=_LIST_SECONDS)

        asked = self.with_skills()
        await self._read_each(asked, read)
        listed: list[tuple[Skill, str]] = []
        for one in asked:
            for skill in found.get(one, ()):
                prefix = self.skill_prefix(skill)
                if prefix is not None:
                    listed.append((skill, prefix))
        return listed

    def skill_prefix(self, skill: Skill) -> str | None:
        """Return the prefix of the URIs of a skill in the hub, which is settled when it is first seen, or None."""
        exposed = self.settled_uri(skill.server, skill.uri)
        if not exposed.endswith(skill.uri):
            # Two servers are alike in name.
            return None
        prefix = exposed.removesuffix(skill.uri)
        self._skills[prefix + skill.root] = skill.server, skill.root
        if len(self._skills) > _MAX_SKILLS:
            # The oldest is found again by its listing.
            del self._skills[next(iter(self._skills))]
        return prefix

    def with_skills(self) -> list[McpConnection]:
        """Return the connections to the servers that declare skills and answer."""
        return [one for one in self._offering("extensions") if skill_settings(one.capabilities)[0]]

    def knows_skill(self, uri: str) -> bool:
        """Whether a URI is in a skill that was seen."""
        return self._owner_of_skill(uri) is not None

    def _owner_of_skill(self, uri: str) -> tuple[str, str] | None:
        """Return the server of the skill that a URI is in, with its URI there; the innermost of nested ones."""
        folder = uri
        while "/" in folder and self._skills:
            known = self._skills.get(folder)
            if known is not None:
                return known[0], known[1] + uri.removeprefix(folder)
            folder = folder.rpartition("/")[0]
        return None

    def exposed_uri(self, server: str, uri: str) -> str:
        """Return the exposed URI of a server's own: the same, unless it was listed and another server's was taken."""
        return self.qualified.get((server, uri), uri)

    async def subscribe(
        self, uri: str, listener: Callable[[str], object], *, allowed: Callable[[str], bool] = lambda server: True
    ) -> Unsubscribe | None:
        """Subscribe to a resource at its owning server, else at every server that agrees; None when there is none.

        Servers accept URIs that they do not have, so that of an unlisted one only its updates show the owner.

        Args:
            uri: The exposed URI.
            listener: Called with the exposed URI after each update of the resource or of a part of it.
            allowed: Whether a server may be asked, by its name.

        Raises:
            ServerError: Every server that was asked refused.
            ToolError: The pins of every server that could be asked withhold it.
        """
        await self.resources()  # learns the names
        ends: list[Unsubscribe] = []
        errors: list[ServerError | ToolError] = []

        async def one(connection: McpConnection, own: str) -> None:
            def updated(update: ResourceUpdated) -> None:
                part = update.uri.removeprefix(own)
                listener(uri + part if own + part == update.uri else self.exposed_uri(connection.name, update.uri))

            try:
                ends.append(await connection.subscribe_resource(own, updated, timeout=_FOLLOW_SECONDS))
            except (ServerError, ToolError) as error:
                _log.info("%s; it does not announce updates of %r", error, mask_url(uri))
                errors.append(error)

        def unsubscribe() -> None:
            while ends:
                ends.pop()()

        try:
            async with anyio.create_task_group() as tasks:
                for connection, own in self.owners(uri):
                    if _subscribes(connection) and allowed(connection.name):
                        tasks.start_soon(one, connection, own)
        except BaseException:
            # Those that have agreed already must not send updates that nobody can end.
            unsubscribe()
            raise
        if errors and not ends:
            raise errors[0]
        return unsubscribe if ends else None

    def _named(self, kind: HubListKind, listed: list[tuple[McpConnection, tuple[Any, ...]]]) -> tuple[HubEntry, ...]:
        """Return definitions under exposed names, which are given in the order of the servers."""
        present = [(one, items) for one, items in listed if self._clients.get(one.name) is one]
        known, entries = self._known.get(kind, ([], ()))
        if _are_same(present, known):
            return entries
        traits = _TRAITS[kind]
        named = list[HubEntry]()
        for connection, items in present:
            server = connection.name
            member = traits.member
            raw: dict[str, Mapping[str, Any]] = {item.raw[member]: item.raw for item in items}
            is_shared = self._shared.get(server) is connection
            give = self._names.give if is_shared else self._names.give_like
            for name, own in give(traits.noun, connection.config, raw).items():
                definition = {**raw[own], member: name}
                named.append(HubEntry(server=server, own=own, name=name, definition=definition))
        self._known[kind] = present, tuple(named)
        if kind == "resources":
            qualified = {(one.server, one.own): one.name for one in named if one.name != one.own}
            if qualified != self.qualified:
                self.qualified = qualified
        return self._known[kind][1]

    def owners(self, uri: str) -> list[tuple[McpConnection, str]]:
        """Return the connections to ask for a resource, with its URI there: only the owner if known, else all."""
        holder = self._names.holder_of_uri(uri) or self._owner_of_skill(uri)
        clients = self._clients
        if holder is not None:
            owner = clients.get(str(holder[0]))
            if owner is None:
                return []
            return [(owner, holder[1])]
        found: list[tuple[McpConnection, str]] = []
        for client in clients.values():
            own = without_server(uri, client.name)
            if own is not None:
                found.append((client, own))
        return found + [(client, uri) for client in self._offering("resources")]

    def owner_of_prompt(self, name: str) -> tuple[McpConnection, str] | None:
        """Return the connection that has a prompt, with its name there, if that is known."""
        holder = self._names.given("prompt").holder(name)
        if holder is None:
            owner = None
        else:
            owner = self._clients.get(str(holder[0]))
        if holder is None or owner is None:
            return None
        return (owner, holder[1])

    def knows_resource(self, uri: str) -> bool:
        """Return whether a resource is already assigned to a server."""
        return self._names.holder_of_uri(uri) is not None

    def keep_resource(self, uri: str, server: str, own: str) -> None:
        """Note that a resource was read from a server, where it stays."""
        self._names.given("resource").give((server, own), uri, None)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None, *, version: str | None, timeout: float | None
    ) -> PromptResult:
        """Return a prompt filled in; see `Hub.get_prompt`."""
        found = self.owner_of_prompt(name)
        if found is None:
            await self.prompts()  # learns the names
            found = self.owner_of_prompt(name)
        if found is None:
            raise ProtocolError(f"no server has a prompt {name!r}", server="hub", code=INVALID_PARAMS)
        connection, own = found
        return await connection.get_prompt(own, arguments, version=version, timeout=timeout)

    async def owner_of_reference(self, ref: Mapping[str, str]) -> tuple[McpConnection, dict[str, str]]:
        """Return the connection that completes arguments of a prompt or template, with the reference in its words.

        Raises:
            ProtocolError: No server has it.
        """
        if "name" in ref:
            found = self.owner_of_prompt(ref["name"])
            if found is None:
                await self.prompts()  # learns the names
                found = self.owner_of_prompt(ref["name"])
            if found is None:
                raise ProtocolError(f"no server has a prompt {ref['name']!r}", server="hub", code=INVALID_PARAMS)
            return found[0], {**ref, "name": found[1]}
        uri = ref.get("uri", "")
        for kind, learn in (("resource template", self.templates), ("resource", self.resources)):
            if self._names.given(kind).holder(uri) is None:
                await learn()
            holder = self._names.given(kind).holder(uri)
            if holder is None:
                owner = None
            else:
                owner = self._clients.get(str(holder[0]))
            if holder is not None and owner is not None:
                return owner, {**ref, "uri": holder[1]}
        raise ProtocolError(f"no server has a resource template {uri!r}", server="hub", code=INVALID_PARAMS)

    async def read_resource(
        self, uri: str, *, version: str | None, timeout: float | None
    ) -> tuple[EmbeddedResource, ...]:
        """Return the contents of a resource; see `Hub.read_resource`."""
        if not self.knows_resource(uri):
            await self.resources()  # as above
        failed: ServerError | ToolError | None = None
        for connection, own in self.owners(uri):
            try:
                contents = await connection.read_resource(own, version=version, timeout=timeout)
            except (ServerError, ToolError) as error:  # others may have it
                # All servers but one are expected not to have it. Any other error explains the failure better.
                if not isinstance(error, ProtocolError) or error.code not in _UNKNOWN:
                    failed = error
                continue
            self.keep_resource(uri, connection.name, own)
            if own == uri:
                return contents
            return tuple(one.replace(uri=uri, raw={}) if one.uri == own else one for one in contents)
        raise failed or ProtocolError(f"no server has a resource {uri!r}", server="hub", code=INVALID_PARAMS)

    def _offering(self, capability: str) -> list[McpConnection]:
        return [one for one in self._clients.values() if capability in one.capabilities and one.state in USABLE]

    async def _read_each(
        self, asked: Sequence[McpConnection], read: Callable[[McpConnection], Awaitable[object]]
    ) -> dict[McpConnection, ServerError]:
        """Ask servers concurrently; return those that failed, with the error."""
        errors: dict[McpConnection, ServerError] = {}

        async def one(connection: McpConnection) -> None:
            try:
                await read(connection)
            except ServerError as error:
                _log.info("%s", error)
                errors[connection] = error

        async with anyio.create_task_group() as tasks:
            for connection in asked:
                tasks.start_soon(one, connection)
        return errors

    async def refresh_tools(self) -> None:
        """Read the tools again of servers that announce no changes and whose list is no longer current."""
        outdated = [one for one in self._offering("tools") if not one.gateway_side.list_facts("tools").current]
        await self._read_each(outdated, lambda one: one.refresh(timeout=_LIST_SECONDS))


def _subscribes(connection: McpConnection) -> bool:
    declared: Any = connection.capabilities.get("resources")
    return isinstance(declared, dict) and cast("Json", declared).get("subscribe") is True


def _are_same(
    lists: Sequence[tuple[McpConnection, tuple[Any, ...]]], others: Sequence[tuple[McpConnection, tuple[Any, ...]]]
) -> bool:
    """Return whether the lists of connections are the very same objects: an unchanged list stays the same tuple."""
    if len(lists) != len(others):
        return False
    for (client, items), (other, other_items) in zip(lists, others, strict=True):
        if client is not other or items is not other_items:
            return False
    return True
