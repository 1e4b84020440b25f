"""The offers that a request is about, with the scopes that their definitions need.

An offer is found the way the request itself will find it, so that no alias, template or second name leads around its
scopes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from toolweave._json_types import array_or_empty, as_object, object_or_empty
from toolweave.protocol import methods
from toolweave.protocol.component_meta import asked_version, tags_in
from toolweave.protocol.server_features import read_reference
from toolweave.protocol.subscriptions import RESOURCE_SUBSCRIPTIONS
from toolweave.serve._offers.prompts import Prompts
from toolweave.serve._offers.resources import OffersElsewhere, Resources
from toolweave.serve._tools import Tools
from toolweave.serve._visibility import OfferFacts
from toolweave.serve.request import Offered, OfferKind


class Operations:
    """Finds the offers that requests are about.

    Args:
        tools: The tools of a server.
        resources: Its resources.
        prompts: Its prompts.
    """

    def __init__(self, tools: Tools, resources: Resources, prompts: Prompts) -> None:
        self._tools = tools
        self._resources = resources
        self._prompts = prompts

    def __call__(self, method: str, params: Mapping[str, Any]) -> Sequence[Offered]:
        """Return the offers of a request; none for a malformed one, which is answered with an error anyway."""
        version = asked_version(params)
        if method == methods.TOOLS_CALL:
            return self._tool(params.get("name"), version)
        if method == methods.PROMPTS_GET:
            return self._prompt(params.get("name"), version)
        if method in methods.BY_URI:
            return self._resource(params.get("uri"), version)
        if method == methods.SUBSCRIPTIONS_LISTEN:
            return self._listened(params.get("notifications"))
        if method == methods.COMPLETION_COMPLETE:
            return self._completed(params.get("ref"))
        return ()

    def facts(self, kind: OfferKind, name: str, version: str | None = None) -> OfferFacts:
        """Return the facts about an offer that visibility rules go by; of one that is not known its name."""
        if kind == "tools":
            spec = self._tools.find(name, version)
            if spec is None:
                return OfferFacts(kind, (name,), frozenset())
            return OfferFacts(kind, (spec.name,), spec.tags)
        offers = self._prompts if kind == "prompts" else self._resources
        definition = offers.definition(name, version)
        if definition is None:
            return OfferFacts(kind, (name,), frozenset())
        own = (definition[member] for member in ("uri", "uriTemplate", "name") if member in definition)
        return OfferFacts(kind, (name, *own), tags_in(definition.get("_meta")))

    def _tool(self, name: object, version: str | None) -> Sequence[Offered]:
        if isinstance(name, str):
            spec = self._tools.find(name, version)
        else:
            spec = None
        if spec is None:
            return ()
        return (Offered("tools", spec.name, spec.scopes, spec.server),)

    def _prompt(self, name: object, version: str | None = None) -> Sequence[Offered]:
        if not isinstance(name, str):
            return ()
        return (Offered("prompts", name, self._prompts.scopes(name, version)),)

    def _resource(self, uri: object, version: str | None = None) -> Sequence[Offered]:
        """Return the URI, and where a function reads it the URI or template of that."""
        if not isinstance(uri, str):
            return ()
        asked = Offered("resources", uri, ())
        found = self._resources.registry.find(uri, version)
        if found is None:
            offers = [asked]
            for source in self._resources.sources:
                if isinstance(source, OffersElsewhere):
                    offers += source.offered(uri, version)
            return offers
        return (asked, Offered("resources", found[0].uri, found[0].scopes))

    def _listened(self, wanted: object) -> Sequence[Offered]:
        uris = array_or_empty(object_or_empty(wanted).get(RESOURCE_SUBSCRIPTIONS))
        return list(chain.from_iterable(map(self._resource, uris)))

    def _completed(self, ref: object) -> Sequence[Offered]:
        reference = as_object(ref)
        if reference is None:
            return ()
        try:
            kind, name = read_reference(reference)
        except ValueError:
            return ()
        if kind == "prompt":
            return self._prompt(name)
        return (Offered("resources", name, self._resources.scopes(name)), *self._resource(name))
