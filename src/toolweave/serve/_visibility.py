"""Offers that are enabled and disabled while a server runs, for all callers or for the session of one.

The innermost middleware of a server, there only when something was ever enabled or disabled: an offer that a caller
does not is in none of its lists, and a request for it is answered as for something that there never was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, NamedTuple, Protocol

from toolweave._json_types import as_array, object_or_empty
from toolweave.errors import RequestError, StoreError
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.component_meta import asked_version
from toolweave.protocol.server_features import read_reference
from toolweave.protocol.subscriptions import RESOURCE_SUBSCRIPTIONS
from toolweave.serve._auth.scopes import fits, fits_uri
from toolweave.serve._changes import PROMPTS, RESOURCES, TOOLS, Changes, Topic
from toolweave.serve._sessions import Sessions, session_key
from toolweave.serve._unknown import not_offered, unknown_reference
from toolweave.serve.request import CallNext, Client, Json, MayUse, OfferKind, Request

_BY_URI = frozenset({methods.RESOURCES_READ, methods.RESOURCES_SUBSCRIBE})
_LISTS = frozenset(
    {
        methods.TOOLS_LIST,
        methods.PROMPTS_LIST,
        methods.RESOURCES_LIST,
        methods.RESOURCES_TEMPLATES_LIST,
        methods.SUBSCRIPTIONS_LISTEN,
        methods.COMPLETION_COMPLETE,
    }
)
_ABOUT_OFFERS = _BY_URI | _LISTS | {methods.TOOLS_CALL, methods.PROMPTS_GET}
_TOPICS = (TOOLS, PROMPTS, RESOURCES)
_MAX_RULES = 200
"""Rules of one session; older ones that the newest repeat are dropped."""


class OfferFacts(NamedTuple):
    """The facts about an offer that rules go by.

    Attributes:
        kind: Its kind.
        names: Its name; of a resource the URI, the template that has it and its name.
        tags: Its tags.
    """

    kind: OfferKind
    names: tuple[str, ...]
    tags: frozenset[str]


class VisibleOffers(Protocol):
    """Finds the facts about an offer, as a request for it finds the offer."""

    def __call__(self, kind: OfferKind, name: str, version: str | None = None) -> OfferFacts:
        """Return the facts about an offer by its name, URI or template."""
        ...


class VisibilityRule(NamedTuple):
    """One rule: it enables or disables offers that have one of its names or one of its tags.

    Attributes:
        enabled: Whether it enables.
        names: Names, URIs and templates, or the beginning of some with a `*` at its end.
        tags: Tags.
    """

    enabled: bool
    names: Sequence[str]
    tags: Sequence[str]

    def selects(self, facts: OfferFacts) -> bool:
        """Whether the rule is about an offer."""
        if not facts.tags.isdisjoint(self.tags):
            return True
        # a URI that might name anything is disabled, and never enabled
        if facts.kind == "resources":
            fits_name = partial(fits_uri, odd=not self.enabled)
        else:
            fits_name = fits
        return any(fits_name(key, name) for key, name in product(self.names, facts.names))


def _rule(enabled: bool, names: Iterable[str], tags: Iterable[str]) -> VisibilityRule:
    """Return a rule.

    Raises:
        ValueError: There are neither names nor tags, or one is not a text.
    """
    rule = VisibilityRule(enabled, _listed(names), _listed(tags))
    if not rule.names and not rule.tags:
        raise ValueError("give names, as in enable('drop_table'), or tags, as in enable(tags={'admin'})")
    return rule


def _listed(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str):  # one name, not its characters
        return [texts]
    return sorted(texts)


class Visibility:
    """Middleware that hides disabled offers; the last matching rule wins.

    The rules of a session come after those of the server, so that a session may see offers that others do not.

    Args:
        facts: Finds the facts about offers.
        sessions: The sessions of callers.
        changes: Notifies clients that their lists changed.
    """

    reads_results = False

    def __init__(self, facts: VisibleOffers, sessions: Sessions, changes: Changes) -> None:
        self._facts = facts
        self._sessions = sessions
        self._changes = changes
        self.rules: tuple[VisibilityRule, ...] = ()

    def add(self, enabled: bool, names: Iterable[str], tags: Iterable[str]) -> None:
        """Enable or disable for all callers, and notify all clients.

        Raises:
            ValueError: The rule names nothing.
        """
        self.rules = (*self.rules, _rule(enabled, names, tags))
        for topic in _TOPICS:
            self._changes.publish(topic)

    def changed(self, rules: list[Any], enabled: bool, names: Iterable[str], tags: Iterable[str]) -> list[Any]:
        """Return a session's rules with another one; rules that it repeats are dropped.

        Raises:
            ValueError: The rule names nothing.
        """
        added = _rule(enabled, names, tags)
        # Only the last rule for the same names and tags counts. Those before it are dropped, so that the list of a
        # session stays short however often a handler enables and disables the same offers.
        kept = [one for one in rules if one[1:] != [added.names, added.tags]]
        return [*kept[-_MAX_RULES + 1 :], list(added)]

    def notify(self, client: Client) -> None:
        """Notify a client, and no other, that its lists changed: its conversation, or the streams of its principal."""
        for topic in _TOPICS:
            if client.modern:
                self._changes.publish(Topic(topic.method, session_key(client) or ""))
            else:
                self._changes.publish_to(client.conversation or "", topic, {})

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request as if the offers that its caller does not see did not exist."""
        if request.method not in _ABOUT_OFFERS:
            return await call_next(request)
        try:
            own = await self._sessions.visible(request.client)
        except StoreError as exc:  # a rule that cannot be read might be one that disables
            raise RequestError(f"the session cannot be read: {exc}", code=INTERNAL_ERROR) from exc
        rules = (*self.rules, *(VisibilityRule(*one) for one in own))
        self._check(request, rules)
        if request.method in _LISTS:
            request = request.replace(client=replace(request.client, may=self._view(request.client.may, rules)))
        if request.method == methods.SUBSCRIPTIONS_LISTEN:
            request = self._without_hidden(request, rules)
        return await call_next(request)

    def _shows(self, rules: Sequence[VisibilityRule], kind: OfferKind, name: str, version: str | None = None) -> bool:
        facts = self._facts(kind, name, version)
        for rule in reversed(rules):
            if rule.selects(facts):
                return rule.enabled
        return True

    def _check(self, request: Request, rules: Sequence[VisibilityRule]) -> None:
        """Refuse a request about something hidden.

        Raises:
            RequestError: The answer for an unknown offer.
        """
        method = request.method
        params = request.params
        version = asked_version(request.params)
        if method == methods.COMPLETION_COMPLETE:
            self._check_completion(request, rules)
            return
        if method in _LISTS:
            return
        kind: OfferKind = "tools"
        key = "name"
        if method == methods.PROMPTS_GET:
            kind = "prompts"
        elif method in _BY_URI:
            kind = "resources"
            key = "uri"
        name = params.get(key)
        if isinstance(name, str) and not self._shows(rules, kind, name, version):
            raise not_offered(kind, name, modern=request.modern)

    def _check_completion(self, request: Request, rules: Sequence[VisibilityRule]) -> None:
        try:
            kind, name = read_reference(request.object("ref"))
        except ValueError:
            return  # which the feature refuses
        if not self._shows(rules, "prompts" if kind == "prompt" else "resources", name):
            raise unknown_reference(kind, name)

    def _view(self, before: MayUse | None, rules: Sequence[VisibilityRule]) -> MayUse:
        def may(kind: OfferKind, name: str, scopes: Iterable[str] = (), server: str | None = None, /) -> bool:
            if not self._shows(rules, kind, name):
                return False
            return before is None or before(kind, name, tuple(scopes), server)

        return may

    def _without_hidden(self, request: Request, rules: Sequence[VisibilityRule]) -> Request:
        """Return a request to listen without the resources that its caller does not see."""
        wanted = object_or_empty(request.params.get("notifications"))
        uris = as_array(wanted.get(RESOURCE_SUBSCRIPTIONS))
        if uris is None:
            return request
        # An entry that is not a text stays, so that it is refused as it would be without rules.
        kept = [uri for uri in uris if not isinstance(uri, str) or self._shows(rules, "resources", uri)]
        notifications = {**wanted, RESOURCE_SUBSCRIPTIONS: kept}
        return request.replace(params={**request.params, "notifications": notifications})
