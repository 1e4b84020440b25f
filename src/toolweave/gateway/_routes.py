"""Routes: from the names and URIs that callers use to a server and its own name for the same thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from toolweave.hub import Hub
from toolweave.hub._offers import HubOffers
from toolweave.tools import Toolset, ToolSpec

__all__ = ["Route", "Routes"]


class Route(msgspec.Struct, frozen=True):
    """The target of a request.

    Attributes:
        server: The upstream's name in the config.
        name: The upstream's own name or URI.
        spec: The definition of a tool; None for anything else.
    """

    server: str
    name: str
    spec: ToolSpec | None = None


class Routes:
    """Finds upstreams for names and URIs.

    Args:
        hub: The upstreams.
        tools: The tools that callers see: the hub, or a view of it.
        offers: The prompts, resources and templates of the hub.
    """

    def __init__(self, hub: Hub, tools: Toolset, offers: HubOffers) -> None:
        self._hub = hub
        self._tools = tools
        self._offers = offers
        self._renamed: dict[str, tuple[int, Mapping[str, str]]] = {}

    def tool(self, name: str) -> Route | None:
        """Return the route of a tool by its exposed name or an alias, or None."""
        spec = self._tools.snapshot().find(name)
        if spec is None or spec.server is None:
            return None
        return Route(server=spec.server, name=spec.original_name, spec=spec)

    async def prompt(self, name: str) -> Route | None:
        """Return the route of a prompt by its exposed name, or None."""
        given = self._hub.given("prompt")
        if given.holder(name) is None:
            await self._offers.prompts()  # names what there is
        holder = given.holder(name)
        return None if holder is None or holder[0] not in self._hub.clients else Route(str(holder[0]), holder[1])

    async def resources(self, uri: str) -> Sequence[Route]:
        """Return the upstreams that may have a resource, the owner alone where it is known, in the order to ask."""
        if self._hub.given("resource").holder(uri) is None:
            await self._offers.resources()  # as above
        return [Route(connection.name, own) for connection, own in self._offers.owners(uri)]

    def keep_resource(self, uri: str, route: Route) -> None:
        """Note that a resource was read from an upstream, where it stays."""
        self._hub.given("resource").give((route.server, route.name), uri, None)

    async def template(self, uri: str) -> Route | None:
        """Return the route of a resource template, or of a resource, by its exposed form, or None."""
        for kind, listing in (("resource template", self._offers.templates), ("resource", self._offers.resources)):
            given = self._hub.given(kind)
            if given.holder(uri) is None:
                await listing()
            holder = given.holder(uri)
            if holder is not None and holder[0] in self._hub.clients:
                return Route(str(holder[0]), holder[1])
        return None

    def renamed_uris(self, server: str) -> Mapping[str, str]:
        """Return the resources of an upstream that callers know under other URIs: these by its own."""
        given = self._hub.given("resource").names_of(server)
        known = self._renamed.get(server)
        if known is None or known[0] != len(given):
            found = {own: name for name, own in given.items() if own != name}
            known = self._renamed[server] = (len(given), found)
        return known[1]
