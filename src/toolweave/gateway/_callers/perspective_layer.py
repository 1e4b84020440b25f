"""Middleware that shows further middleware the offers which the caller of a request sees.

Rules judge the definitions of the connection that the caller reaches. A tool that only that connection has is found,
and one that differs there is judged as it is there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from toolweave.gateway._callers.perspectives import Perspective, Perspectives
from toolweave.gateway._relay.routes import Routes
from toolweave.protocol import methods
from toolweave.serve import CallNext, Offered, Request
from toolweave.serve.request import Json
from toolweave.tools import ToolSpec


class _OfferFinder(Protocol):
    """Finds the offers that requests are about."""

    def offers_in(self, routes: Routes, method: str, params: Mapping[str, Any]) -> Sequence[Offered]:
        """Return the offers that a request is about."""
        ...


class PerspectiveLayer:
    """The outermost middleware: replaces the offers that other middleware sees by those of the caller's perspective.

    Args:
        perspectives: Finds the perspective of a caller.
        offers: Finds the offers that a request is about.
    """

    reads_results = False
    # a call that went around middleware went to a connection that many callers share
    sees_plain_calls = False

    def __init__(self, perspectives: Perspectives, offers: _OfferFinder) -> None:
        self._perspectives = perspectives
        self._offers = offers
        self._lookups: WeakKeyDictionary[Perspective, _PerspectiveOffers] = WeakKeyDictionary()

    def __call__(self, request: Request, call_next: CallNext) -> Awaitable[Json]:
        """Answer a request."""
        perspective = self._perspectives.of(request.client)
        if perspective is self._perspectives.shared:
            return call_next(request)
        lookup = self._lookups.get(perspective)
        # one for each perspective: middleware that keeps something keeps it by this
        if lookup is None:
            lookup = self._lookups[perspective] = _PerspectiveOffers(perspective, self._offers)
        return call_next(request.replace(server=lookup))


class _PerspectiveOffers:
    """The `OfferLookup` of one perspective."""

    def __init__(self, perspective: Perspective, offers: _OfferFinder) -> None:
        # Neither is held by the other: the tools and routes are parts of a perspective, and know nothing of this.
        self._tools = perspective.tools
        self._routes = perspective.routes
        self._offers = offers

    def find_tool(self, name: str, version: str | None = None) -> ToolSpec | None:
        """Return the definition of a tool by its name or an alias, or None."""
        return self._tools.snapshot().find(name)

    async def learn_offers(self, method: str, params: Mapping[str, Any]) -> None:
        """List the definitions that `offers_of` needs."""
        await self._routes.learn(method)

    def offers_of(self, method: str, params: Mapping[str, Any]) -> Sequence[Offered]:
        """Return the offers that a request is about."""
        if method != methods.TOOLS_CALL:
            return self._offers.offers_in(self._routes, method, params)
        name = params.get("name")
        spec = self.find_tool(name) if isinstance(name, str) else None
        if spec is None:
            return ()
        return (Offered("tools", spec.name, spec.scopes, spec.server),)
