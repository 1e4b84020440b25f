"""The section `gateway.auth` of a config, which authorizes callers, as an authorization of `toolweave.serve`.

```json
{
  "gateway": {
    "auth": {
      "api_keys": {"ci": {"sha256": "9f86d0...", "scopes": ["read"], "claims": {"team": "platform"}}},
      "jwt": {"issuer": "https://login.example", "audience": "https://tools.example/mcp"}
    }
  }
}
```

`${VAR}` and `${file:PATH}` are replaced by secrets, as in the entries of servers. Connects to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, TypeVar, get_type_hints

import msgspec

from toolweave._json_types import as_array, as_sequence
from toolweave._value import Value
from toolweave.config import Secret
from toolweave.config._expand import Expander, Scope
from toolweave.config.validation import check_object, suggestion
from toolweave.errors import ConfigError, StoreError
from toolweave.serve import (
    ApiKey,
    ApiKeyAuth,
    ApiKeys,
    ClientRules,
    Dpop,
    IntrospectionAuth,
    JwtAuth,
    OAuthServer,
    ScopeRules,
    TokenAuth,
    Upstream,
)
from toolweave.serve._auth.token_auth import ProtectionOptions
from toolweave.state import MemoryStore, open_store
from toolweave.tools.selection import member_of

WHERE = "gateway.auth"
_Kind = TypeVar("_Kind", bound=Value)


class JwtSettings(Value, frozen=True):
    """The settings of `jwt`; see `JwtAuth`."""

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"key"})

    issuer: str | tuple[str, ...]
    audience: str | tuple[str, ...]
    client_ids: tuple[str, ...] = ()
    jwks_url: str | dict[str, str] | None = None
    key: str | dict[str, str] | None = None
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    token_type: Literal["any", "at+jwt"] = "any"  # noqa: S105  # a type of tokens
    leeway_seconds: float = 30


class IntrospectionSettings(Value, frozen=True):
    """The settings of `introspection`; see `IntrospectionAuth`."""

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"client_secret"})

    issuer: str
    audience: str | tuple[str, ...]
    client_id: str
    client_secret: str
    client_ids: tuple[str, ...] = ()
    introspection_url: str | None = None
    method: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"
    cache_seconds: float = 30


class OAuthServerSettings(Value, frozen=True):
    """The settings of `oauth_server`; see `OAuthServer`.

    Attributes:
        provider: The provider: its `type`, such as `oidc` or `github`, and the settings of an `Upstream` of that type.
        store: The URL of the store, empty for one in memory.
        allow: Values that claims of a person must have, by claim, or by the path of one such as
            `realm_access.roles`; one of each list.
        registration: Whether clients may register themselves.
        documents: Whether clients may be named by the URL of their metadata document.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"provider", "secret", "store"})

    url: str
    provider: dict[str, Any]
    secret: str | tuple[str, ...]
    store: str = ""
    allow: dict[str, str | tuple[str, ...]] = msgspec.field(default_factory=dict[str, "str | tuple[str, ...]"])
    registration: bool = True
    documents: bool = True


class ScopeSettings(Value, frozen=True):
    """The settings of `scopes`; see `ScopeRules`."""

    tools: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict[str, tuple[str, ...]])
    resources: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict[str, tuple[str, ...]])
    prompts: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict[str, tuple[str, ...]])
    hide: bool = False


class ApiKeySettings(Value, frozen=True):
    """The settings of one API key; see `ApiKey`."""

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"key", "sha256"})

    key: str | None = None
    sha256: str = ""
    scopes: tuple[str, ...] = ()
    claims: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    expires_at: float | str | None = None


class CallerAuth(Value, frozen=True):
    """The section `gateway.auth`, with variables in it expanded.

    Attributes:
        api_keys: The API keys.
        issuer: The settings of `jwt`, `introspection` or `oauth_server`, or None.
        required_scopes: The scopes that every caller needs.
        scopes: The scopes that single tools, resources and prompts need.
        scopes_supported: The scopes that the metadata lists.
        resource: The gateway's own URL.
        authorization_servers: The issuers of tokens for it.
        dpop: Whether proofs of possession are offered to clients, or `required`.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"api_keys"})

    api_keys: tuple[ApiKey, ...] = ()
    issuer: JwtSettings | IntrospectionSettings | OAuthServerSettings | None = None
    required_scopes: tuple[str, ...] = ()
    scopes: ScopeSettings = ScopeSettings()
    scopes_supported: tuple[str, ...] | None = None
    resource: str | None = None
    authorization_servers: tuple[str, ...] = ()
    dpop: bool | Literal["required"] = False

    def build(self) -> TokenAuth:
        """Return the authorization.

        Raises:
            ConfigError: A setting is wrong; `field` names it.
        """
        options = self._options()
        issuer = self.issuer
        where = WHERE
        try:
            if issuer is None:
                return ApiKeyAuth(ApiKeys(self.api_keys), **options)
            where = f"{WHERE}.{_KINDS[type(issuer)]}"
            keys: ProtectionOptions = {**options, "api_keys": ApiKeys(self.api_keys)}
            if isinstance(issuer, OAuthServerSettings):
                return _oauth_server(issuer, keys)
            given = {name: getattr(issuer, name) for name in issuer.__struct_fields__}
            return (JwtAuth if isinstance(issuer, JwtSettings) else IntrospectionAuth)(**given, **keys)
        except ConfigError as exc:
            # Scopes are checked in the same block and name their own setting.
            if exc.field is not None and exc.field.startswith(WHERE):
                field = exc.field
            else:
                field = where
            raise ConfigError(f"{field!r}: {exc.message}", field=field) from None

    def _options(self) -> ProtectionOptions:
        # Only what the file has: the defaults of the classes stand in one place.
        options: ProtectionOptions = {"required_scopes": self.required_scopes, "scopes": self._rules()}
        if self.scopes_supported is not None:
            options["scopes_supported"] = self.scopes_supported
        if self.resource is not None:
            options["resource"] = self.resource
        if self.authorization_servers:
            options["authorization_servers"] = self.authorization_servers
        if self.dpop:
            options["dpop"] = Dpop(required=self.dpop == "required")
        return options

    def _rules(self) -> ScopeRules:
        given = self.scopes
        try:
            return ScopeRules(tools=given.tools, resources=given.resources, prompts=given.prompts, hide=given.hide)
        except ConfigError as exc:
            raise ConfigError(f"'{WHERE}.scopes': {exc.message}", field=f"{WHERE}.scopes") from None


_KINDS: Mapping[type[Value], str] = {
    JwtSettings: "jwt",
    IntrospectionSettings: "introspection",
    OAuthServerSettings: "oauth_server",
}
_PROVIDERS = ("oidc", "github", "google", "entra", "okta", "auth0", "keycloak")


def read_caller_auth(value: Any, scope: Scope) -> CallerAuth:
    """Read the section `gateway.auth`.

    Args:
        value: The section as the file has it.
        scope: The variables that it may name.

    Raises:
        ConfigError: A setting is unknown or wrong, or a variable is not set; `field` names it. No secret is shown.
    """
    # Variables are expanded first, so that a secret in one is checked like one in the file.
    section = dict(check_object(Expander(scope).value(value, WHERE), WHERE))
    issuers = {name: kind for kind, name in _KINDS.items() if name in section}
    if len(issuers) > 1:
        raise ConfigError(f"'{WHERE}' has {' and '.join(issuers)}; one of them issues the tokens", field=WHERE)
    given: dict[str, Any] = {}
    for name, kind in issuers.items():
        given["issuer"] = _settings(kind, section.pop(name), f"{WHERE}.{name}")
    if "scopes" in section:
        given["scopes"] = _settings(ScopeSettings, section.pop("scopes"), f"{WHERE}.scopes")
    if "api_keys" in section:
        keys = tuple(_api_keys(section.pop("api_keys")))
    else:
        keys = ()
    # An empty section could mean that every caller is accepted, or none. An owner who writes it wants protection, so
    # neither is guessed.
    if not keys and not issuers:
        raise ConfigError(f"'{WHERE}' needs 'api_keys', or one of {', '.join(_KINDS.values())}", field=WHERE)
    rest = [name for name in CallerAuth.__struct_fields__ if name not in ("issuer", "scopes", "api_keys")]
    types = get_type_hints(CallerAuth)
    known = (*_KINDS.values(), "api_keys", "scopes", *rest)
    for name, setting in section.items():
        given[name] = _converted(setting, types[_known(name, known, WHERE)], f"{WHERE}.{name}")
    made = CallerAuth(api_keys=keys, **given)
    # A mistake has to be found when the file is read: a reload then keeps the rules in use.
    made.build()  # opens nothing; validates the settings
    return made


def _api_keys(value: Any) -> Iterator[ApiKey]:
    where = f"{WHERE}.api_keys"
    for name, entries in check_object(value, where).items():
        listed = as_sequence(entries)
        # Several keys under one name, so that an owner can replace a key while clients still use the old one.
        for entry in (entries,) if listed is None else listed:
            place = f"{where}.{name}"
            one = _settings(ApiKeySettings, {"key": entry} if isinstance(entry, str) else entry, place)
            try:
                yield ApiKey(
                    name=str(name),
                    key=None if one.key is None else Secret(one.key),
                    sha256=one.sha256,
                    scopes=one.scopes,
                    claims=one.claims,
                    expires_at=_time(one.expires_at, f"{place}.expires_at"),
                )
            except ConfigError as exc:
                raise ConfigError(exc.message, field=exc.field or place) from None


def _time(value: float | str | None, where: str) -> float | None:
    if not isinstance(value, str):
        return value
    try:
        read = datetime.fromisoformat(value)
    except ValueError:
        raise ConfigError(f"{where!r} must be a time such as 2027-01-31T12:00:00Z", field=where) from None
    # The zone of the machine would make the same file mean different times on different machines.
    return (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp()


def _oauth_server(settings: OAuthServerSettings, options: ProtectionOptions) -> OAuthServer:
    where = f"{WHERE}.oauth_server"
    rest = dict(settings.provider)
    # A list and not any attribute of `Upstream`: the name comes from a file.
    kind = rest.pop("type", None)
    if kind not in _PROVIDERS:
        field = f"{where}.provider.type"
        raise ConfigError(f"{field!r} must be one of {', '.join(_PROVIDERS)}", field=field)
    if isinstance(rest.get("client_secret"), str):
        rest["client_secret"] = Secret(rest["client_secret"])
    try:
        provider: Upstream = getattr(Upstream, kind)(**rest)
    except TypeError as exc:  # an argument that is missing, or one too many: by its name
        # The part after the function's name, or a check of `Upstream`, says which argument; values, which may be
        # secrets, are not in it.
        text = str(exc)
        said = text.partition("() ")[2] or (text if text.startswith("Upstream.") else "a setting is wrong")
        raise ConfigError(f"'{where}.provider': {said}", field=f"{where}.provider") from None

    def allowed(claims: Mapping[str, Any]) -> bool:
        return all(_has(member_of(claims, name), wanted) for name, wanted in settings.allow.items())

    try:
        if settings.store:
            store = open_store(settings.store)
        else:
            store = MemoryStore()
    except StoreError as exc:
        raise ConfigError(str(exc), field=f"{where}.store") from None
    return OAuthServer(
        url=settings.url,
        upstream=provider,
        store=store,
        secret=settings.secret if isinstance(settings.secret, str) else list(settings.secret),
        clients=ClientRules(registration=settings.registration, documents=settings.documents),
        allow=allowed if settings.allow else None,
        **options,
    )


def _has(claim: Any, wanted: str | tuple[str, ...]) -> bool:
    # Providers differ: one group is a text in some tokens, a list with one member in others.
    there = as_array(claim)
    if there is None:
        there = [claim]
    values = (wanted,) if isinstance(wanted, str) else wanted
    return any(isinstance(one, str) and one in values for one in there)


def _settings(kind: type[_Kind], value: Any, where: str) -> _Kind:
    """Return the settings of one kind; all are known, and those that it needs are there."""
    given = check_object(value, where)
    types = get_type_hints(kind)
    found = {
        name: _converted(setting, types[_known(name, kind.__struct_fields__, where)], f"{where}.{name}")
        for name, setting in given.items()
    }
    missing = [name for name in _required(kind) if name not in found]
    if missing:
        raise ConfigError(f"{where!r} needs {missing[0]!r}", field=f"{where}.{missing[0]}")
    return kind(**found)


def _required(kind: type[Value]) -> tuple[str, ...]:
    # msgspec keeps the defaults of the last fields alone, as those without a default come first.
    return kind.__struct_fields__[: len(kind.__struct_fields__) - len(kind.__struct_defaults__)]


def _known(name: Any, known: Sequence[str], where: str) -> str:
    """Return a setting's name: a slip must not be left out silently."""
    if name in known:
        return str(name)
    raise ConfigError(f"{where!r} has no setting {name!r}; {suggestion(name, known)}", field=f"{where}.{name}")


def _converted(value: Any, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:  # its text names types, and values of enumerations alone
        raise ConfigError(f"{where!r}: {exc}", field=where) from None
