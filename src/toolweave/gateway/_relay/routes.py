"""Routes: from the names and URIs that callers use to a server and its own name for the same thing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from toolweave.hub import Hub
from toolweave.hub._hub import offer_names
from toolweave.hub._offers import HubOffers
from toolweave.protocol import methods
from toolweave.serve import Offered
from toolweave.serve._offers.templates import may_expand
from toolweave.serve.request import OfferKind
from toolweave.tools import Toolset, ToolSpec


class Route(msgspec.Struct, frozen=True):
    """The target of a request.

    Attributes:
        server: The upstream's name in the config.
        name: The upstream's own name or URI.
        spec: The definition of a tool; None for anything else.
        place: The connection that a request about a task must take, where that is not the one of the hub; see
            `TaskPlaces`.
    """

    server: str
    name: str
    spec: ToolSpec | None = None
    place: str = ""


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
        self._learned: set[str] = set()
        self._names = offer_names(hub)
        self._resource_names = self._names.given("resource")
        self._renamed: dict[str, tuple[int, Mapping[str, str]]] = {}

    # the subject of a request, for rules

    async def learn(self, method: str) -> None:
        """List the prompts or the resources and templates, unless they were listed since they last changed."""
        listings: list[tuple[str, Callable[[], Awaitable[object]]]] = []
        if method in (methods.PROMPTS_GET, methods.COMPLETION_COMPLETE):
            listings.append(("prompts", self._offers.prompts))
        if method not in (methods.TOOLS_CALL, methods.PROMPTS_GET):
            listings += [("resources", self._offers.resources), ("templates", self._offers.templates)]
        for kind, listing in listings:
            if kind not in self._learned:
                learned = self._learned
                await listing()
                # to the set of before: a list that changed meanwhile is listed again
                learned.add(kind)

    def forget(self) -> None:
        """List everything again before the next `learn`: something changed."""
        self._learned = set()

    def offered(self, offer: Offered) -> Sequence[Offered]:
        """Return an offer for each upstream that may have it; a resource with the templates that it may be of."""
        if offer.kind == "tools":
            return (offer,)
        found: list[Offered] = []
        for server, own in self._holders(offer.kind, offer.name):
            found.append(offer._replace(server=server))
            if offer.kind == "resources":
                is_template = offer.name in self._names.given("resource template").names_of(server)
                if is_template:
                    listed = offer.name
                else:
                    listed = self._offers.exposed_uri(server, own)
                # rules about the resource hold for every spelling of its URI
                if listed != offer.name:
                    found.append(Offered("resources", listed, (), server))
                templates = self._names.given("resource template").names_of(server)
                fitting = [name for name, inner in templates.items() if name != offer.name and may_expand(inner, own)]
                found += [Offered("resources", name, (), server) for name in fitting]
        return found or (offer,)

    def _holders(self, kind: OfferKind, name: str) -> Sequence[tuple[str, str]]:
        """Return the upstreams that have a prompt or a resource, or may have it, with its name there."""
        if kind == "prompts":
            holder = self._names.given("prompt").holder(name)
            return [(one, name) for one in self._hub.clients if holder is None or one == holder[0]]
        holder = self._names.given("resource template").holder(name)
        if holder is not None:
            return [(str(holder[0]), holder[1])]
        return [(connection.name, own) for connection, own in self._offers.owners(name)]

    # the routes of requests

    def tool(self, name: str) -> Route | None:
        """Return the route of a tool by its exposed name or an alias, or None."""
        spec = self._tools.snapshot().find(name)
        if spec is None or spec.server is None:
            return None
        return Route(server=spec.server, name=spec.original_name, spec=spec)

    async def prompt(self, name: str) -> Route | None:
        """Return the route of a prompt by its exposed name, or None."""
        given = self._names.given("prompt")
        if given.holder(name) is None:
            await self._offers.prompts()  # learns the names
        holder = given.holder(name)
        if holder is None or holder[0] not in self._hub.clients:
            return None
        return Route(str(holder[0]), holder[1])

    async def resources(self, uri: str) -> Sequence[Route]:
        """Return the upstreams that may have a resource, the owner alone where it is known, in the order to ask."""
        if self._names.holder_of_uri(uri) is None:
            await self._offers.resources()  # as above
        return [Route(connection.name, own) for connection, own in self._offers.owners(uri)]

    def keep_resource(self, uri: str, route: Route) -> None:
        """Note that a resource was read from an upstream, where it stays."""
        self._resource_names.give((route.server, route.name), uri, None)

    async def template(self, uri: str) -> Route | None:
        """Return the route of a resource template, or of a resource, by its exposed form, or None."""
        for find, listing in (
            (self._names.given("resource template").holder, self._offers.templates),
            (self._names.holder_of_uri, self._offers.resources),
        ):
            if find(uri) is None:
                await listing()
            holder = find(uri)
            if holder is not None and holder[0] in self._hub.clients:
                return Route(str(holder[0]), holder[1])
        return None

    def renamed_uris(self, server: str) -> Mapping[str, str]:
        """Return the resources of an upstream that callers know under other URIs: these by its own."""
        given = self._resource_names.names_of(server)
        if not given:
            return given
        known = self._renamed.get(server)
        if known is None or known[0] != len(given):
            found = {own: name for name, own in given.items() if own != name}
            known = self._renamed[server] = (len(given), found)
        return known[1]
