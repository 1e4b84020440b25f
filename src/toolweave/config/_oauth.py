"""The settings of a sign-in with OAuth, as a value. Sends nothing and stores nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import msgspec

from toolweave._json_types import Json, JsonObject, as_integer, as_number, text_or_empty, without_members
from toolweave._value import Value
from toolweave.config._keys import snake_case
from toolweave.config._secret import Secret, wrap
from toolweave.config.validation import (
    Check,
    check_choice,
    check_flag,
    check_object,
    check_text,
    check_texts,
    check_url,
    is_loopback,
)
from toolweave.errors import ConfigError

OAuthGrant = Literal[
    "authorization_code", "device_code", "client_credentials", "jwt_bearer", "enterprise", "token_exchange"
]
"""The ways to get a token: a person in a browser, a person with a code on another device, the client for itself (RFC
6749 4.4), a workload's own assertion (RFC 7523), an enterprise's identity provider (ID-JAG), and the token of a caller
(RFC 8693)."""

OAuthIdentity = Literal["own", "caller"]
"""The identity that requests are made as: that of the program itself, or of each caller of a gateway."""

OAuthSecret = str | Secret | Callable[[], Any]
"""A secret, or a callable, plain or async, that returns it for each use; a callable comes from code alone."""

ALGORITHMS = ("ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "EdDSA")
_TIMEOUT = 300.0
_MAX_SECONDS = 3600.0
_SCOPE = r"[\x21\x23-\x5b\x5d-\x7e]+"
_GRANTS = {
    "authorization_code": "authorization_code",
    "code": "authorization_code",
    "device_code": "device_code",
    "device": "device_code",
    "urn:ietf:params:oauth:grant_type:device_code": "device_code",
    "client_credentials": "client_credentials",
    "jwt_bearer": "jwt_bearer",
    "urn:ietf:params:oauth:grant_type:jwt_bearer": "jwt_bearer",
    "enterprise": "enterprise",
    "id_jag": "enterprise",
    "token_exchange": "token_exchange",
    "urn:ietf:params:oauth:grant_type:token_exchange": "token_exchange",
}
_NEEDS: dict[str, tuple[tuple[str, ...], ...]] = {  # of each group one
    "client_credentials": (("client_id",), ("client_secret", "private_key")),
    "jwt_bearer": (("assertion",),),
    "enterprise": (("client_id",), ("idp_token_endpoint",), ("idp_client_id",), ("idp_id_token",)),
    "token_exchange": (("issuer",), ("client_id",)),  # a caller's token must not go to an issuer that the server names
}


class OAuth(Value, frozen=True, kw_only=True):
    """The sign-in at the authorization server of an MCP server; without any setting all is discovered.

    Raises:
        ConfigError: A value cannot be right, or the grant lacks a setting.

    Attributes:
        scopes: The scopes to ask for instead of those that the server names.
        grant: The way to get a token.
        issuer: The only authorization server that is accepted; empty for the one that the server names. A given
            `client_id` belongs to it.
        metadata_url: The URL of the authorization server's metadata, where they cannot be discovered.
        client_id: The id of a client that is registered already; no other is registered then.
        client_secret: Its secret.
        client_metadata_url: The https URL of a Client ID Metadata Document, which is the client's id where the
            authorization server reads such documents.
        client_name: The name with which a client is registered, which people see when they consent.
        redirect_port: The loopback port of the redirect; None for a free one.
        private_key: The private key, as PEM, with which the client authenticates (`private_key_jwt`, RFC 7523).
        algorithm: Its algorithm, such as `ES256` or `RS256`.
        assertion: The workload's assertion of `jwt_bearer`.
        idp_issuer: The issuer of the identity provider of `enterprise`.
        idp_token_endpoint: Its token endpoint.
        idp_client_id: The client's id there.
        idp_client_secret: The client's secret there.
        idp_id_token: The user's ID token there.
        identity: `caller` for a server that a gateway calls as each of its callers, who signs in there; `own` for one
            identity of all. With the grant `token_exchange` it is `caller` where no `subject_token` is given.
        subject_token: The token that `token_exchange` gives for another one, to the authorization server alone.
        audience: The server's name at the authorization server of `token_exchange`, where that is not its URL.
        dpop: Whether tokens are bound to a key (RFC 9449); None where the server asks for it. True refuses others.
        principal: The user on whose behalf it is, as the program names them; tokens of two are never mixed.
        timeout: Seconds that a person has for a sign-in.
        store: The `toolweave.oauth.TokenStore` that keeps tokens; None for the default one. Only from code.
        user_agent: The `toolweave.oauth.UserAgent` that shows a person where to sign in. Only from code.
        options: Other keys of the entry, as they came.
    """

    scopes: Sequence[str] = ()
    grant: OAuthGrant = "authorization_code"
    issuer: str = ""
    metadata_url: str = ""
    client_id: str = ""
    client_secret: OAuthSecret | None = None
    client_metadata_url: str = ""
    client_name: str = "Toolweave"
    redirect_port: int | None = None
    private_key: OAuthSecret | None = None
    algorithm: str = "ES256"
    assertion: OAuthSecret | None = None
    idp_issuer: str = ""
    idp_token_endpoint: str = ""
    idp_client_id: str = ""
    idp_client_secret: OAuthSecret | None = None
    idp_id_token: OAuthSecret | None = None
    identity: OAuthIdentity = "own"
    subject_token: OAuthSecret | None = None
    audience: str = ""
    dpop: bool | None = None
    principal: str = ""
    timeout: float = _TIMEOUT
    store: Any = None  # a TokenStore, of a room above
    user_agent: Any = None  # a UserAgent, of a room above
    options: JsonObject = msgspec.field(default_factory=Json)

    def __post_init__(self) -> None:
        # Single values first, so that the checks of their combinations see them in canonical form.
        for name, check in _CHECKS.items():
            msgspec.structs.force_setattr(self, name, check(getattr(self, name), f"oauth.{name}"))
        for group in _NEEDS.get(self.grant, ()):
            if not any(getattr(self, name) for name in group):
                named = " or ".join(f"'{name}'" for name in group)
                raise ConfigError(f"'oauth' with the grant {self.grant!r} needs {named}", field=f"oauth.{group[0]}")
        if self.grant == "token_exchange" and not self.subject_token:
            # Without a fixed token, the only token to exchange is that of the caller.
            msgspec.structs.force_setattr(self, "identity", "caller")
        if self.identity == "caller":
            self._check_caller()
        if self.client_secret and not self.client_id:
            raise ConfigError("'oauth.client_secret' needs 'client_id', to which it belongs", field="oauth.client_id")

    def _check_caller(self) -> None:
        if self.principal:
            raise ConfigError(
                "'oauth.identity' is 'caller', and 'oauth.principal' names one user: give one of them",
                field="oauth.principal",
            )
        if self.grant not in ("authorization_code", "token_exchange"):
            raise ConfigError(
                f"'oauth.identity' is 'caller', but the grant {self.grant!r} is of the program itself",
                field="oauth.identity",
            )

    @classmethod
    def of(cls, value: object) -> OAuth:
        """Make an `OAuth` from any accepted form: one, true or None for all defaults, or a mapping.

        Keys are read in camelCase and snake_case, and in the words of editors: `callbackPort`, `redirectUri`,
        `authServerMetadataUrl`, `scope`.

        Raises:
            ConfigError: As the class.
        """
        if isinstance(value, OAuth):
            return value
        if value is None or value is True:
            return cls()
        return cls(**_arguments(check_object(value, "oauth")))

    def of_client(self) -> OAuth:
        """Return the settings by which a client gets tokens for itself (RFC 6749, 4.4), where no person could sign in.

        Raises:
            ConfigError: They name another grant, no client, or neither its secret nor its key.
        """
        if self.grant not in ("authorization_code", "client_credentials"):
            raise ConfigError(
                f"'oauth' has the grant {self.grant!r}: an API is given 'client_credentials', or a token that you have",
                field="oauth.grant",
            )
        if self.dpop:
            raise ConfigError("'oauth.dpop': an API is sent bearer tokens", field="oauth.dpop")
        return self.replace(grant="client_credentials")

    def secrets(self) -> tuple[str, ...]:
        """Return every fixed secret in it, for masking."""
        values: list[OAuthSecret | None] = [getattr(self, name) for name in _SECRETS]
        return tuple(value.reveal() for value in values if isinstance(value, Secret) and value)

    def to_mapping(self) -> Json:
        """Return the values that differ from the defaults, secrets still wrapped."""
        settings = self.without_defaults()
        settings.pop("options", None)
        if self.scopes:
            settings["scopes"] = list(self.scopes)
        return {**self.options, **settings}

    def __hash__(self) -> int:
        # A part is enough for a hash, and `options` may hold lists, which cannot be hashed.
        return hash((self.grant, self.issuer, self.client_id, self.client_metadata_url, self.principal, self.scopes))

    def __repr__(self) -> str:
        shown = without_members(self.to_mapping(), *self.options)
        for name in ("store", "user_agent"):
            if name in shown:
                shown[name] = f"<{type(shown[name]).__name__}>"
        return f"OAuth({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        # The view of the options cannot be pickled.
        return _rebuild, ({**msgspec.structs.asdict(self), "options": dict(self.options)},)


def _rebuild(state: Json) -> OAuth:
    return OAuth(**state)


_WORDS = {
    "scope": "scopes",
    "oauth_scopes": "scopes",
    "grant_type": "grant",
    "oauth_client_id": "client_id",
    "auth_server_metadata_url": "metadata_url",
    "authorization_server_metadata_url": "metadata_url",
    "client_id_metadata_url": "client_metadata_url",
    "client_id_metadata_document": "client_metadata_url",
    "callback_port": "redirect_port",
    "signing_algorithm": "algorithm",
    "private_key_pem": "private_key",
}
_IGNORED = frozenset({"type", "enabled", "auth_provider_type"})


def _arguments(entry: JsonObject) -> Json:
    known: Json = {}
    options: Json = {}
    names = {*OAuth.__struct_fields__} - {"options"}
    for key, value in entry.items():
        word = snake_case(key)
        word = _WORDS.get(word, word)
        if value is None or word in _IGNORED:
            continue
        if word in names:
            known.setdefault(word, value)
        elif word == "redirect_uri":
            known.setdefault("redirect_port", _port_of(value))
        else:
            options[str(key)] = value
    return {**known, "options": options}


def _port_of(value: object) -> int | None:
    """Return the port of a loopback redirect URI, as some editors are given the whole of it."""
    url = check_url(value, "oauth.redirect_uri")
    parts = urlsplit(url)
    if not is_loopback(parts.hostname):
        raise ConfigError("'oauth.redirect_uri' must be on this machine: its port is what counts", field="redirect_uri")
    return parts.port


def _scopes(value: object, field: str) -> tuple[str, ...]:
    if isinstance(value, str):
        scopes = tuple(value.split())
    else:
        scopes = check_texts(value, field)
    for scope in scopes:
        if not re.fullmatch(_SCOPE, scope):
            raise ConfigError(f"{field!r} holds {scope!r}, which is not a scope (RFC 6749 3.3)", field=field)
    return tuple(dict.fromkeys(scopes))


def _grant(value: object, field: str) -> str:
    word = check_text(value, field).strip().lower().replace("-", "_")
    return check_choice(_GRANTS.get(word, value), field, get_args(OAuthGrant))


def _secret(value: object, field: str) -> OAuthSecret | None:
    if value is None or callable(value):
        return value
    text = check_text(value, field, controls=field.endswith("private_key"))
    if text:
        return wrap(text)
    return None


def _text(value: object, field: str) -> str:
    return check_text(value, field, controls=False).strip()


def _safe_url(value: object, field: str) -> str:
    url = check_text(value, field).strip()
    if not url:
        return ""
    # Secrets and codes go there. On loopback plain http is safe, and tests and development need it.
    parts = urlsplit(check_url(url, field))
    if parts.scheme != "https" and not is_loopback(parts.hostname):
        raise ConfigError(f"{field!r} must be an https URL", field=field)
    return url


def _port(value: object, field: str) -> int | None:
    if value is None:
        return None
    # a variable may have made it a string
    if re.fullmatch("[0-9]{1,5}", text_or_empty(value)):
        value = int(str(value))
    port = as_integer(value)
    if port is None or not 0 < port < 65536:
        raise ConfigError(f"{field!r} must be a port, from 1 to 65535", field=field)
    return port


def _flag(value: object, field: str) -> bool | None:
    if value is None:
        return None
    return check_flag(value, field)


def _seconds(value: object, field: str) -> float:
    seconds = as_number(value)
    if seconds is None or not 0 < seconds <= _MAX_SECONDS:
        raise ConfigError(f"{field!r} must be a number of seconds, at most {_MAX_SECONDS:g}", field=field)
    return float(seconds)


def _algorithm(value: object, field: str) -> str:
    return check_choice(value, field, ALGORITHMS)  # never `none`, and no symmetric one


def _identity(value: object, field: str) -> str:
    return check_choice(value, field, get_args(OAuthIdentity))


def _options(value: JsonObject, field: str) -> JsonObject:
    return MappingProxyType(dict(value))


_SECRETS = ("client_secret", "private_key", "assertion", "idp_client_secret", "idp_id_token", "subject_token")
_CHECKS: dict[str, Check] = {
    "scopes": _scopes,
    "grant": _grant,
    "issuer": _safe_url,
    "metadata_url": _safe_url,
    "client_id": _text,
    "client_metadata_url": _safe_url,
    "client_name": _text,
    "redirect_port": _port,
    "algorithm": _algorithm,
    "idp_issuer": _safe_url,
    "idp_token_endpoint": _safe_url,
    "idp_client_id": _text,
    "identity": _identity,
    "audience": _text,
    "dpop": _flag,
    "principal": _text,
    "timeout": _seconds,
    "options": _options,
    **dict.fromkeys(_SECRETS, _secret),
}
