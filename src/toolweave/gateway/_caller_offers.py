"""The offers of the shared gateway and of the caller's own, merged for middleware."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import ref

from toolweave.gateway._caller_gateways import InnerGateway
from toolweave.protocol import methods
from toolweave.serve._request import Offered, OfferLookup
from toolweave.tools import ToolSpec


class CallerOffers:
    """The `OfferLookup` of one caller; the same as long as its gateway is there, which it does not keep.

    Args:
        outer: The shared gateway.
        inner: The gateway of the caller.
        sign_in_tools: Returns the tools by which the caller signs in.
    """

    def __init__(
        self, outer: OfferLookup, inner: InnerGateway, sign_in_tools: Callable[[InnerGateway], Sequence[ToolSpec]]
    ) -> None:
        self._outer = outer
        self._inner = ref(inner)
        self._sign_in_tools = sign_in_tools

    def find_tool(self, name: str, version: str | None = None) -> ToolSpec | None:
        """Return the definition of a tool by its name, or None."""
        found, inner = self._outer.find_tool(name), self._inner()
        if found is not None or inner is None:
            return found
        own = inner.tools.snapshot().by_name.get(name)
        return own or next((one for one in self._sign_in_tools(inner) if one.name == name), None)

    async def learn_offers(self, method: str, params: Mapping[str, Any]) -> None:
        """List the definitions that `offers_of` needs from the servers of both gateways."""
        await self._outer.learn_offers(method, params)
        inner = self._inner()
        if inner is not None:
            await inner.learn_offers(method, params)

    def offers_of(self, method: str, params: Mapping[str, Any]) -> Sequence[Offered]:
        """Return the offers that a request is about, of both."""
        if method == methods.TOOLS_CALL:
            name = params.get("name")
            spec = self.find_tool(name) if isinstance(name, str) else None
            return () if spec is None else (Offered("tools", spec.name, spec.scopes, spec.server),)
        inner = self._inner()
        own = () if inner is None else inner.offers_of(method, params)
        return [*self._outer.offers_of(method, params), *own]
