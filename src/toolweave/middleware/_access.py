"""Rules that allow and deny tools, prompts and resources to callers; denied offers are also hidden.

A rule without arguments is decided once for each caller and offer. Lists are filtered by the features themselves,
before they are cut into pages, so that no cursor or count reveals hidden offers. Requests for a hidden offer are
answered as if it did not exist.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, TypeAlias, cast

import msgspec

from toolweave._json_types import as_array, only_members, without_members
from toolweave._option_checks import FLAG, TEXT, TEXTS, OptionKind, list_of
from toolweave._value import Value
from toolweave.errors import ConfigError, ErrorKind, RequestError, ToolError
from toolweave.middleware._options import as_tuples, of_kinds, one_of
from toolweave.middleware._selection import TO_LEARN, OfferSelection, RequestTarget, found_target, learn, target_of
from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_PARAMS
from toolweave.protocol.server_features import read_reference
from toolweave.protocol.subscriptions import RESOURCE_SUBSCRIPTIONS
from toolweave.schema import Validator
from toolweave.schema.validate import usable_validator
from toolweave.serve import CallNext, Identity, MayUse, OfferLookup, Request
from toolweave.serve._unknown import not_offered, unknown_reference
from toolweave.serve.request import Json, OfferKind
from toolweave.tools import ToolResult
from toolweave.tools._scopes import scope_list
from toolweave.tools.mcp import call_result
from toolweave.tools.selection import fits, member_of

Claim: TypeAlias = str | int | bool | Sequence[str | int | bool]
_MAX_CALLERS = 1_000
_MAX_DECISIONS = 20_000
_LARGEST_ARGUMENTS = 256 * 1024
"""Bytes of arguments that an expression may read; with more it counts as failed."""
_WITH_ARGUMENTS = frozenset({methods.TOOLS_CALL, methods.PROMPTS_GET})
_VOLATILE = frozenset({"exp", "iat", "nbf", "jti", "auth_time"})
"""Claims that differ from token to token of one caller, which no condition reads."""


def _is_claims(value: object) -> bool:
    try:
        msgspec.convert(value, dict[str, Claim])
    except msgspec.ValidationError:
        return False
    return True


_RULE_KINDS: Mapping[str, OptionKind] = {
    "authenticated": FLAG.or_none,
    **dict.fromkeys(("clients", "subjects", "issuers", "scopes"), TEXTS),
    "claims": OptionKind(_is_claims, "a mapping of names to strings, whole numbers, flags or lists of these"),
    "when": TEXT.or_none,
}


class AccessRule(OfferSelection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule: conditions on offers and callers, and the verdict. A condition that is not given fits all.

    Attributes:
        effect: `allow` or `deny`.
        authenticated: Whether the caller has a token.
        clients: Globs of OAuth client ids.
        subjects: Globs of users.
        issuers: Globs of the issuers of tokens.
        scopes: Scopes that the token must have, all of them.
        claims: Claims that the token must have, all of them: a value, or several of which one is enough; a claim that
            is a list has to hold one. A dotted name reads inside an object, as `realm_access.roles`.
        when: A CEL expression over `kind`, `name`, `server`, `tool`, `caller` and `args` (extra `cel`). One that fails
            denies, whatever the effect.
    """

    effect: Literal["allow", "deny"]
    authenticated: bool | None = None
    clients: Sequence[str] = ()
    subjects: Sequence[str] = ()
    issuers: Sequence[str] = ()
    scopes: Sequence[str] = ()
    claims: Mapping[str, Claim] = msgspec.field(default_factory=dict[str, Any])
    when: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        as_tuples(self, "clients", "subjects", "issuers", "scopes")
        msgspec.structs.force_setattr(self, "claims", _without_sets(self.claims))
        of_kinds(self, _RULE_KINDS)
        scope_list(self.scopes)  # no token has one that is not valid, so a rule that denies would deny nobody
        one_of(self, "effect", "allow", "deny")

    def fits_caller(self, identity: Identity | None) -> bool:
        """Whether the conditions on the caller hold."""
        has_identity = identity is not None
        if self.authenticated not in (None, has_identity):
            return False
        if identity is None:
            return not any((self.clients, self.subjects, self.issuers, self.scopes, self.claims))
        for globs, value in (
            (self.clients, identity.client_id),
            (self.subjects, identity.subject),
            (self.issuers, identity.issuer),
        ):
            if globs and not fits(globs, value):
                return False
        if not set(self.scopes) <= set(identity.scopes):
            return False
        return all(_has(identity.claims, name, wanted) for name, wanted in self.claims.items())


def _without_sets(claims: object) -> object:
    """Return the claims of a rule with lists in place of sets, which programs may give."""
    if not isinstance(claims, Mapping):
        return claims
    members = cast("Mapping[str, object]", claims).items()
    return {name: list(cast("set[Any]", one)) if isinstance(one, set | frozenset) else one for name, one in members}


def _has(claims: Mapping[str, Any], name: str, wanted: Claim) -> bool:
    value = member_of(claims, name)
    held = as_array(value)
    if held is None:
        held = [value]
    if not isinstance(wanted, str) and isinstance(wanted, Sequence):
        options = wanted
    else:
        options = (wanted,)
    for one in held:
        for option in options:
            # The types are compared, too: 1 is not true.
            if type(one) is type(option) and one == option:
                return True
    return False


class AccessRules(Value, frozen=True, kw_only=True):
    """Middleware that lets callers see and use only the offers that rules allow.

    A rule that denies wins over any that allow, in whatever order they stand; what no rule fits is up to `default`.

    Attributes:
        rules: The rules.
        default: `deny`, or `allow` for a list of exceptions.

    Raises:
        ConfigError: An expression does not compile, or the extra `cel` is not installed.
    """

    rules: Sequence[AccessRule] = ()
    default: Literal["allow", "deny"] = "deny"
    _state: _Compiled = msgspec.field(default_factory=lambda: _Compiled())  # noqa: PLW0108  # it is defined below

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"_state"})
    ports: ClassVar[frozenset[str]] = frozenset({"_state"})
    reads_results: ClassVar[bool] = False

    def __post_init__(self) -> None:
        as_tuples(self, "rules")
        of_kinds(self, {"rules": list_of(AccessRule, "a list of AccessRule(...)")})
        one_of(self, "default", "allow", "deny")
        self._state.compile(self.rules, default=self.default)

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request as if the offers that the caller may not use did not exist."""
        view = self._state.view(request.client.identity)
        if request.method in TO_LEARN:
            await learn(request)
        target = target_of(request)
        # Always allowed: a caller whose access was withdrawn must be able to end a subscription that it made before.
        if target is not None and request.method != methods.RESOURCES_UNSUBSCRIBE:
            verdict = view.verdict(target)
            # The same error as for a name that does not exist: "forbidden" would confirm to a caller that a hidden
            # offer is there.
            if not verdict.visible or (target.kind == "tools" and target.spec is None):
                raise _unknown(request, target)
            if verdict.conditions and request.method in _WITH_ARGUMENTS and not verdict.allows(request):
                return _refused(request, target)
        client = request.client
        # Handed on for everything behind this middleware that lists or looks up offers, so that lists, completions and
        # changes are filtered by the same decision as this request.
        request = request.replace(client=client.limited(_also(client.may, view, request.server, target)))
        if request.method == methods.SUBSCRIPTIONS_LISTEN:
            request = _without_hidden(request, view)
        return _private(await call_next(request))


def _unknown(request: Request, target: RequestTarget) -> RequestError:
    # A completion has other words for an unknown reference, and a hidden prompt must get exactly those.
    if request.method == methods.COMPLETION_COMPLETE:
        return unknown_reference(*read_reference(request.object("ref")))
    name = request.text("uri" if target.kind == "resources" else "name")
    return not_offered(target.kind, name, modern=request.modern)


def _refused(request: Request, target: RequestTarget) -> Json:
    """Return the answer to a call whose arguments no rule allows, or do not fit; the model reads it."""
    said = (
        f"these arguments of {target.names[0]!r} are not allowed to this caller, or do not fit its schema; "
        "send values of the types that the schema names"
    )
    if target.kind != "tools":
        raise RequestError(said, code=INVALID_PARAMS)
    return call_result(ToolResult.failure(ToolError(said, kind=ErrorKind.DENIED)), modern=request.modern)


def _private(result: Json) -> Json:
    """Return a result that no cache gives to another caller, for whom the rules may differ."""
    if result.get("cacheScope") == "public":
        return {**result, "cacheScope": "private"}
    return result


def _without_hidden(request: Request, view: _View) -> Request:
    """Return a request to listen without the resources that its caller may not read."""
    wanted = request.params.get("notifications")
    uris: Any = cast("Json", wanted).get(RESOURCE_SUBSCRIPTIONS) if isinstance(wanted, dict) else None
    if not isinstance(uris, list):
        return request
    kept = [
        uri
        for uri in cast("list[Any]", uris)
        if not isinstance(uri, str) or view.verdict(found_target(request.server, "resources", uri)).visible
    ]
    notifications = {**cast("Json", wanted), RESOURCE_SUBSCRIPTIONS: kept}
    return request.replace(params={**request.params, "notifications": notifications})


def _also(before: MayUse | None, view: _View, server: OfferLookup | None, target: RequestTarget | None) -> MayUse:
    mine = partial(view.shows, server, target)
    if before is None:
        return mine

    def both(kind: OfferKind, name: str, scopes: Iterable[str] = (), upstream: str | None = None, /) -> bool:
        scopes = tuple(scopes)
        return before(kind, name, scopes, upstream) and mine(kind, name, scopes, upstream)

    return both


@dataclass(frozen=True, slots=True)
class _Condition:
    """A rule with its compiled expression."""

    rule: AccessRule
    # An `Expression`; its module is loaded where there is one.
    expression: Any = None

    @property
    def by_arguments(self) -> bool:
        return self.expression is not None and self.expression.reads_arguments

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Whether the expression holds; one that fails holds for a rule that denies, and for no other."""
        if self.expression is None:
            return True
        if self.rule.effect == "deny":
            return not self.expression.is_false(facts)
        return self.expression.is_true(facts)


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The answer of the rules about an offer to a caller.

    Attributes:
        visible: Whether it may see it: there are arguments, at least, with which it may use it.
        allowed: Whether it may use it with any arguments that no condition denies.
        conditions: The rules that read the arguments of a call.
        facts: What their expressions read beside these.
        schema: The validator of the arguments of a tool that conditions read; None where there are none, or no schema.
    """

    visible: bool
    allowed: bool
    conditions: tuple[_Condition, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    schema: Validator | None = None

    def allows(self, request: Request) -> bool:
        """Whether the conditions allow the arguments of a request."""
        given: Any = request.params.get("arguments")
        if isinstance(given, dict):
            arguments = cast("Json", given)
        else:
            arguments = {}
        # Denied and not skipped: a caller could otherwise pad the arguments until a rule about them is no longer read.
        if len(msgspec.json.encode(arguments)) > _LARGEST_ARGUMENTS:
            return False
        # Many servers take the text "5" for the number 5, which a condition about the number would not see.
        if self.schema is not None and not self.schema.is_valid(arguments):
            return False
        facts = {**self.facts, "args": arguments}
        allowed = self.allowed
        for one in self.conditions:
            deny = one.rule.effect == "deny"
            # Allowing rules are evaluated until one holds. Denying rules all are, since one of them wins over any that
            # allow.
            if (deny or not allowed) and one.holds(facts):
                if deny:
                    return False
                allowed = True
        return allowed


_HIDDEN = _Verdict(visible=False, allowed=False)


class _Compiled:
    """The rules with their compiled expressions, and the cached decisions."""

    def __init__(self) -> None:
        self._conditions: tuple[_Condition, ...] = ()
        self._default = False
        # Those that the rules read; None for all.
        self._claims: frozenset[str] | None = frozenset()
        self._volatile = _VOLATILE
        self._views: OrderedDict[bytes, _View] = OrderedDict()

    def compile(self, rules: Sequence[AccessRule], *, default: str) -> None:
        """Compile the rules.

        Raises:
            ConfigError: An expression is wrong.
        """
        self._default = default == "allow"
        self._conditions = tuple(_condition(place, rule) for place, rule in enumerate(rules))
        named = {name for rule in rules for name in rule.claims}
        named |= {name.partition(".")[0] for name in named}
        # Expressions are not shown the volatile claims; a rule that names one is judged by it, for each token anew.
        self._volatile = _VOLATILE - named
        if any(rule.when is not None for rule in rules):
            self._claims = None
        else:
            self._claims = frozenset(named)

    def view(self, identity: Identity | None) -> _View:
        """Return the decisions for a caller."""
        key = self._key(identity)
        known = self._views.get(key)
        if known is None:
            known = self._views[key] = _View(self._conditions, self._default, identity)
            if len(self._views) > _MAX_CALLERS:
                self._views.popitem(last=False)
        else:
            self._views.move_to_end(key)
        return known

    def _key(self, identity: Identity | None) -> bytes:
        if identity is None:
            return b""
        claims = identity.claims
        if self._claims is None:
            read = without_members(claims, *self._volatile)
        else:
            read = only_members(claims, self._claims)
        # The issuer belongs to the key: two authorization servers may both have a subject of this name.
        who = (identity.client_id, identity.issuer, identity.subject, identity.scopes)
        return msgspec.json.encode((who, read), order="deterministic")


def _condition(place: int, rule: AccessRule) -> _Condition:
    if rule.when is None:
        return _Condition(rule)
    from toolweave.middleware._cel import Expression  # an extra

    try:
        return _Condition(rule, Expression(rule.when))
    except ValueError as exc:
        raise ConfigError(f"rule {place + 1}: {exc}", field="when") from None


class _View:
    """The decisions for one caller."""

    def __init__(self, conditions: Sequence[_Condition], default: bool, identity: Identity | None) -> None:
        self._conditions = tuple(one for one in conditions if one.rule.fits_caller(identity))
        self._default = default
        self._caller = _caller(identity)
        self._decided: dict[Any, tuple[Any, _Verdict]] = {}

    def shows(
        self,
        lookup: OfferLookup | None,
        asked: RequestTarget | None,
        kind: OfferKind,
        name: str,
        scopes: Iterable[str] = (),
        server: str | None = None,
        /,
    ) -> bool:
        """Whether the caller may see an offer, or may use that of this server.

        It is found as a request for it finds it, so that lists and requests are decided alike.
        """
        if kind == "tools":
            # A tool may be called by an alias, so the rules judge the definition and not the name that the caller used.
            spec = None if lookup is None else lookup.find_tool(name)
            return self.verdict(RequestTarget(kind, (name,), (server,), spec)).visible
        same = asked is not None and asked.kind == kind and asked.names[0] == name
        # The target of the request itself was found by its version or reference. A second look-up could find another
        # one.
        if asked is not None and same:
            target = asked
        else:
            target = found_target(lookup, kind, name)
        if server is None:
            return self.verdict(target).visible
        places = [one for one in target.places() if server in one.servers]
        # No server is known to have it. It is judged at the one that is about to be asked, not at all servers together.
        return any(self.verdict(one).visible for one in places or [RequestTarget(kind, (name,), (server,))])

    def verdict(self, target: RequestTarget) -> _Verdict:
        """Return the verdict of the rules on an offer; decided once for each definition."""
        key = (target.kind, target.names_at or target.names, target.servers)
        known = self._decided.get(key)
        # By identity: a tool whose definition changed has other annotations perhaps, and is decided anew.
        if known is not None and known[0] is target.spec:
            return known[1]
        if len(self._decided) >= _MAX_DECISIONS:
            # Of URIs that a stranger made up.
            self._decided.clear()
        verdict = self._decide(target)
        self._decided[key] = (target.spec, verdict)
        return verdict

    def _decide(self, target: RequestTarget) -> _Verdict:
        """Return the best verdict among the servers that may have the offer; each is asked only if it is allowed."""
        verdicts = [self._decide_at(place, place.servers[0]) for place in target.places()]
        return next((one for one in verdicts if one.visible), _HIDDEN)

    def _decide_at(self, target: RequestTarget, server: str | None) -> _Verdict:
        """Return the verdict of the rules on an offer of one server; one denial outweighs everything that allows."""
        facts = _facts(target, server, self._caller) | {"args": dict[str, Any]()}
        allowed = self._default
        by_arguments = list[_Condition]()
        for condition in self._conditions:
            deny = condition.rule.effect == "deny"
            # A URI with dot segments may lead anywhere, so it fits every rule that denies and none that allows.
            if not condition.rule.selects(target, odd=deny):
                continue
            # A read has no arguments. Its expression is evaluated with empty ones now, or the resource would count as
            # allowed under a condition that nobody checks later.
            if condition.by_arguments and target.kind != "resources":
                by_arguments.append(condition)
            elif condition.holds(facts):
                if deny:
                    return _HIDDEN
                allowed = True
        # A conditional denial hides nothing: with other arguments the call may be allowed.
        visible = allowed or any(condition.rule.effect == "allow" for condition in by_arguments)
        if not visible:
            return _HIDDEN
        spec = target.spec if by_arguments else None
        schema = None
        if spec is not None:
            schema = usable_validator(spec.input_schema)
        return _Verdict(visible, allowed, tuple(by_arguments), facts, schema)


def _caller(identity: Identity | None) -> Mapping[str, Any]:
    """Return the `caller` of expressions; members that the token has not are empty."""
    if identity is None:
        return {"authenticated": False, "client": "", "subject": "", "issuer": "", "scopes": [], "claims": {}}
    return {
        "authenticated": True,
        "client": identity.client_id,
        "subject": identity.subject or "",
        "issuer": identity.issuer or "",
        "scopes": list(identity.scopes),
        "claims": without_members(identity.claims, *_VOLATILE),
    }


def _facts(target: RequestTarget, server: str | None, caller: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables of expressions, except for the arguments."""
    spec = target.spec
    tool: dict[str, Any] = {}
    if spec is not None:
        tool = {
            "name": spec.original_name,
            "title": spec.title or "",
            "description": spec.description,
            "annotations": dict(spec.annotations or {}),
        }
    return {"kind": target.kind, "name": target.names[-1], "server": server or "", "tool": tool, "caller": caller}
