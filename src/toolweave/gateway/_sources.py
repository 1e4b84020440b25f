"""The resources and prompts of a hub as sources of the lists of a server; requests for them are relayed instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolweave.hub import Hub
from toolweave.hub._offers import HubOffers
from toolweave.serve._offers.prompts import PromptsChanged
from toolweave.serve._offers.registry import ChangeListeners
from toolweave.serve._offers.resources import ResourcesChanged
from toolweave.serve._request import Json
from toolweave.tools import CallContext, Unsubscribe

__all__ = ["HubPrompts", "HubResources"]


class HubResources:
    """The resources of a hub as a `ResourceSource`.

    Attributes:
        offers: The offers behind it.
    """

    def __init__(self, hub: Hub) -> None:
        self._changes = ChangeListeners[ResourcesChanged]()
        self.offers = HubOffers(hub, on_updated=lambda uri: self._changes.tell(ResourcesChanged(uri)))
        self.offers.on_change("resources", lambda: self._changes.tell(ResourcesChanged()))

    async def resources(self) -> Sequence[Json]:
        """Return the definitions of the resources."""
        return await self.offers.resources()

    async def templates(self) -> Sequence[Json]:
        """Return the definitions of the templates."""
        return await self.offers.templates()

    async def read(self, uri: str, ctx: CallContext) -> Json | None:
        """Read a resource, for those who come past the relay."""
        return await self.offers.read(uri)

    def subscribe(self, listener: Callable[[ResourcesChanged], None]) -> Unsubscribe:
        """Call `listener` after every change."""
        return self._changes.subscribe(listener)


class HubPrompts:
    """The prompts of a hub as a `PromptSource`."""

    def __init__(self, hub: Hub) -> None:
        self._changes = ChangeListeners[PromptsChanged]()
        self._offers = HubOffers(hub)
        self._offers.on_change("prompts", lambda: self._changes.tell(PromptsChanged()))

    async def prompts(self) -> Sequence[Json]:
        """Return the definitions of the prompts."""
        return await self._offers.prompts()

    async def get(self, name: str, arguments: Mapping[str, Any], ctx: CallContext) -> Json | None:
        """Get a prompt, for those who come past the relay."""
        return await self._offers.get_prompt(name, arguments)

    def subscribe(self, listener: Callable[[PromptsChanged], None]) -> Unsubscribe:
        """Call `listener` after every change."""
        return self._changes.subscribe(listener)
