"""Routes: from the names and URIs that callers use to a server and its own name for the same thing."""

from __future__ import annotations

from collections.abc import Sequence

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

    def tool(self, name: str) -> Route | None:
        """Return the route of a tool by its exposed name or an alias, or None."""
        spec = self._tools.snapshot().find(name)
        if spec is None or spec.server is None:
            return None
        return Route(server=spec.server, name=spec.original_name, spec=spec)

    async def prompt(self, name: str) -> Route | None:
        """Return the route of a prompt by its exposed name, or None."""
        raise NotImplementedError

    async def resources(self, uri: str) -> Sequence[Route]:
        """Return the upstreams that may have a resource, the owner alone where it is known, in the order to ask."""
        raise NotImplementedError
