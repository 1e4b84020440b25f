"""Capabilities, instructions and identity of a gateway: those of its upstreams, taken together.

A gateway of a single upstream with unchanged names declares the identity of that upstream, as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolweave._json_types import JsonObject, as_object, object_or_empty, only_members, without_members
from toolweave.connect import ConnectionState, McpConnection
from toolweave.errors import RequestError
from toolweave.gateway._features.unreached import UnreachedUpstreams
from toolweave.hub import Hub
from toolweave.hub._hub import caller_servers, offer_names
from toolweave.protocol.codes import METHOD_NOT_FOUND
from toolweave.protocol.meta import OF_EVERY_ERA
from toolweave.protocol.versions import MODERN_VERSIONS
from toolweave.serve import MayUse, Request
from toolweave.serve.request import Json, Method, OfferKind
from toolweave.tools import Toolset
from toolweave.tools._instructions import joined_instructions

_OWN = frozenset({"tools", "prompts", "resources", "completions", "logging", "tasks", "extensions", "experimental"})
_STARTING = frozenset({ConnectionState.IDLE, ConnectionState.CONNECTING})
_NOUNS: Mapping[str, OfferKind] = {"prompt": "prompts", "resource": "resources", "resource template": "resources"}


def declares(connection: McpConnection, capability: str, member: str | None = None) -> bool:
    """Whether an upstream declares a capability, or a member of it as true."""
    if member is None:
        return capability in connection.capabilities
    return object_or_empty(connection.capabilities.get(capability)).get(member) is True


def offered(
    hub: Hub, capability: str, member: str | None = None, *, clients: Mapping[str, McpConnection] | None = None
) -> bool:
    """Return whether any upstream declares the capability, or might: it is connecting, or was never reached.

    An upstream that is called with callers' credentials may declare anything to each of them.

    Args:
        hub: The upstreams.
        capability: The capability.
        member: A member of it that must be true; None asks for the capability alone.
        clients: The connections to the upstreams, if they are not those of the hub.
    """
    if clients is None:
        clients = hub.clients
    # Capabilities are agreed once, in the handshake: what may come later has to be declared before it is known.
    if not clients or caller_servers(hub).configs:
        return True
    return any(_is_to_come(one) or declares(one, capability, member) for one in clients.values())


def require_offered(
    hub: Hub, capability: str, request: Request, *, clients: Mapping[str, McpConnection] | None = None
) -> None:
    """Refuse a method that belongs to a capability which is not declared; see `offered`.

    Raises:
        RequestError: No upstream declares the capability.
    """
    if not offered(hub, capability, clients=clients):
        raise RequestError("Method not found", code=METHOD_NOT_FOUND, data=request.method)


def _is_to_come(connection: McpConnection) -> bool:
    return connection.state in _STARTING or connection.protocol_version is None


class UpstreamCapabilities:
    """The feature that declares a gateway's capabilities, instructions and identity.

    Args:
        hub: The upstreams.
        tools: The tools that callers see.
        info: The gateway's own `Implementation` object.
        instructions: Its own instructions, which replace those of the upstreams; None for theirs.
        handshakes: The connections as callers with a handshake reach them.
        unreached: The upstreams whose offers are not known, which the instructions name.
    """

    def __init__(
        self,
        hub: Hub,
        tools: Toolset,
        info: Mapping[str, Any],
        instructions: str | None = None,
        *,
        handshakes: Mapping[str, McpConnection],
        unreached: UnreachedUpstreams,
    ) -> None:
        self._handshakes = handshakes
        self._hub = hub
        self._tools = tools
        self._own_info = dict(info)
        self._own_instructions = instructions
        self._unreached = unreached
        self._upstreams = hub.clients

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return nothing: it only declares."""
        return {}

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """Return the capabilities of all upstreams, and those that one that is still to come may have.

        The lists may change at any time, whether or not upstreams announce it: one may come, go or restart.
        """
        clients = self._hub.clients if modern else self._handshakes
        found = {name: dict(value) for name, value in self._lists(clients).items()}
        upstreams = tuple(clients.values())
        for name in ("completions", "logging"):
            if offered(self._hub, name, clients=clients):
                found[name] = {}
        experimental = _merged(one.capabilities.get("experimental") for one in upstreams)
        if experimental:
            found["experimental"] = experimental
        only = self.only
        if only is not None:
            shown = clients[only.name].capabilities
            found |= without_members(shown, *_OWN)
        return found | _extensions(upstreams, modern=modern)

    def info(self) -> Mapping[str, Any]:
        """Return the `Implementation` object: our own, or that of the only upstream."""
        # asked with each call, so the quick test comes first
        only = self.only if len(self._upstreams) == 1 else None
        if only is None:
            return self._own_info
        shown = only.server_info
        complete = isinstance(shown.get("name"), str) and isinstance(shown.get("version"), str)
        if complete:
            return shown
        return self._own_info

    def instructions(self, may: MayUse | None = None) -> str | None:
        """Return the instructions of all upstreams, each quoted under its name, or those of the only one as they are.

        Every line of an upstream is quoted, so that none can impersonate another. Those of an upstream where a caller
        may use nothing that is known are left out. Upstreams whose tools are missing are named at the end, so that a
        model can pass on to its user.
        """
        missing = [f"The {self._unreached.described(name)}: its tools are missing." for name in self._missing(may)]
        if self._own_instructions is None:
            found = self._of_upstreams(may)
        else:
            found = self._own_instructions
        return "\n\n".join([*([] if found is None else [found]), *missing]) or None

    def _missing(self, may: MayUse | None) -> Sequence[str]:
        """Return the upstreams that have failed; one that is only starting is there soon."""
        return [name for name in self._unreached.names(may) if name in self._hub.errors]

    def _of_upstreams(self, may: MayUse | None) -> str | None:
        only = self.only
        if only is not None:
            if self._shows(only.name, may):
                return only.instructions
            return None
        return joined_instructions(
            (server, connection.instructions)
            for server, connection in self._hub.clients.items()
            if connection.instructions and self._shows(server, may)
        )

    def _shows(self, server: str, may: MayUse | None) -> bool:
        """Whether a caller may use something of an upstream."""
        if may is None:
            return True
        tools = (spec for spec in self._tools.snapshot() if spec.server == server)
        if any(may("tools", spec.name, spec.scopes, server) for spec in tools):
            return True
        names = offer_names(self._hub)
        for noun, kind in _NOUNS.items():
            if any(may(kind, name, (), server) for name in names.given(noun).names_of(server)):
                return True
        return False

    @property
    def only(self) -> McpConnection | None:
        """The only upstream, if callers see its tools under their own names."""
        clients = self._upstreams
        if len(clients) != 1 or self._tools is not self._hub or caller_servers(self._hub).configs:
            return None
        (only,) = clients.values()
        if only.config.tool_prefix == "" and not self._hub.errors.keys() - clients.keys():
            return only
        return None

    @property
    def unfiltered(self) -> str | None:
        """The name of the only upstream, if it is ready and its entry chooses and changes none of its tools."""
        only = self.only
        if only is None or only.state is not ConnectionState.READY:
            return None
        config = only.config
        if any((config.include, config.exclude, config.shape, config.pins == "block")):
            return None
        return only.name

    def _lists(self, clients: Mapping[str, McpConnection]) -> Mapping[str, Mapping[str, Any]]:
        found: dict[str, Json] = {}
        if offered(self._hub, "tools", clients=clients) or len(self._tools.snapshot()):
            found["tools"] = {"listChanged": True}
        for name in ("prompts", "resources"):
            if offered(self._hub, name, clients=clients):
                found[name] = {"listChanged": True}
        if offered(self._hub, "resources", "subscribe", clients=clients):
            found["resources"]["subscribe"] = True
        return found


def _extensions(upstreams: Iterable[McpConnection], *, modern: bool) -> Json:
    """Return the extensions of the upstreams, with their settings, in an era.

    Handshake revisions know none, but skills and the pages of tools are the same in every revision.
    """
    found: list[JsonObject] = []
    for one in upstreams:
        declared = object_or_empty(one.capabilities.get("extensions"))
        if not modern or one.protocol_version not in MODERN_VERSIONS:
            declared = only_members(declared, sorted(OF_EVERY_ERA))
        found.append(declared)
    extensions = _merged(found)
    if extensions:
        return {"extensions": extensions}
    return {}


def _merged(objects: Iterable[object]) -> Json:
    """Return the members of all objects, by name; of settings that differ all members, the first one's first."""
    found: Json = {}
    for one in objects:
        for name, value in object_or_empty(one).items():
            there = as_object(found.get(name))
            settings = as_object(value)
            found[name] = (
                {**settings, **there} if there is not None and settings is not None else found.get(name, value)
            )
    return found
