"""The authorization of requests to one HTTP server, as a value. Sends nothing and stores nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import msgspec

from toolweave._json_types import Json, JsonObject, as_object
from toolweave._value import Value
from toolweave.config._oauth import OAuth
from toolweave.config._secret import Secret, reveal, wrap
from toolweave.config.secret_args import secrets_in_options
from toolweave.config.validation import check_headers, check_object, check_text, kind_of
from toolweave.errors import ConfigError

AuthType = Literal["bearer", "api_key", "custom", "oauth"]
"""The kinds of authorization."""

_DEFAULT_HEADER = {"bearer": "Authorization", "api_key": "X-API-Key", "custom": "", "oauth": ""}
_NO_PROVIDER: tuple[type, ...] = (bool, int, float, bytes, list, tuple)
_SIGN_IN = frozenset(("oauth", "oauth2", "oauth_2", "oauth2.0", "oauth2.1", "oidc", "openid", "openid_connect", "sso"))
_METHODS = frozenset(
    ("api_key", "apikey", "auto", "basic", "bearer", "custom", "false", "header", "none", "null", "true")
)
_CREDENTIAL_BESIDE = "'auth' is 'oauth' with a token beside it; a token you have is {'type': 'bearer', 'token': ...}"
_KEYS = {
    "type": "type",
    "token": "token",
    "key": "token",
    "apiKey": "token",
    "api_key": "token",
    "value": "token",
    "header": "header",
    "headerName": "header",
    "header_name": "header",
    "headers": "headers",
    "provider": "provider",
}


@runtime_checkable
class StoredCredentials(Protocol):
    """A provider that may be limited to credentials that a sign-in stored before."""

    @property
    def only_stored(self) -> bool:
        """Whether it never starts a sign-in, and sends nothing as long as nothing is stored."""
        ...


class HeaderProvider(Protocol):
    """An object that returns the headers of each request, such as a `toolweave.connect.AuthHook`."""

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers that authorize a request; called before each."""
        ...


class AuthFlow(Protocol):
    """An authorization object of `httpx`, or another with its method."""

    def async_auth_flow(self, request: Any, /) -> AsyncGenerator[Any, Any]:  # of either generation of the library
        """Yield requests, and receive their responses."""
        ...


AuthProvider: TypeAlias = Callable[[], Any] | HeaderProvider | AuthFlow
"""An object from code that authorizes each request; a callable returns a token or a mapping of headers."""


class Auth(Value, frozen=True, kw_only=True):
    """The authorization of requests to an HTTP server.

    Raises:
        ConfigError: An unknown type, no credential for it, or a header that cannot be sent.

    Attributes:
        type: `bearer` sends `Authorization: Bearer TOKEN`, `api_key` sends the bare token in
            `header`, `custom` sends `headers` or what `provider` returns, `oauth` signs in.
        token: The credential of `bearer` and `api_key`.
        header: The header that carries the token: `Authorization` for `bearer`, `X-API-Key` for `api_key`.
        headers: The headers of `custom`.
        provider: A callable, plain or async, called before each request; it returns a token or
            a mapping of headers. Or a `toolweave.connect.AuthHook`, which is called with each refusal too, or an
            `httpx` authorization object. Only from code.
        oauth: The settings of `oauth`.
        options: Other keys of the entry, as they came.
    """

    type: AuthType = "bearer"
    token: str | Secret | None = None
    header: str = ""
    headers: Mapping[str, str | Secret] = msgspec.field(default_factory=dict[str, "str | Secret"])
    provider: Any = None  # a callable or a foreign authorization object
    oauth: OAuth | None = None
    options: JsonObject = msgspec.field(default_factory=Json)

    def __post_init__(self) -> None:
        if self.type not in get_args(AuthType):
            known = ", ".join(get_args(AuthType))
            raise ConfigError(f"'auth.type' is {self.type!r}; known: {known}", field="auth.type")
        header = self.header or _DEFAULT_HEADER[self.type]
        if header:
            check_headers({header: ""}, "auth.header")
        if self.token is not None:
            token = check_text(self.token, "auth.token", controls=False)
            _refuse_method(token)
            msgspec.structs.force_setattr(self, "token", wrap(token))
        msgspec.structs.force_setattr(self, "header", header)
        msgspec.structs.force_setattr(self, "headers", MappingProxyType(check_headers(self.headers, "auth.headers")))
        msgspec.structs.force_setattr(
            self, "options", MappingProxyType(dict(check_object(self.options, "auth.options")))
        )
        if self.type == "oauth" or self.oauth is not None:
            self._check_sign_in()
            return
        if isinstance(self.provider, (*_NO_PROVIDER, str, Secret, Mapping)):
            text = f"must be a function or an authorization object from code, not {kind_of(self.provider)}"
            raise ConfigError(f"'auth.provider' {text}", field="auth.provider")
        credential = "headers" if self.type == "custom" else "token"
        if self.provider is None and not getattr(self, credential):
            raise ConfigError(f"'auth' of type {self.type!r} needs '{credential}'", field=f"auth.{credential}")

    def _check_sign_in(self) -> None:
        has_credential = self.token is not None or self.provider is not None or bool(self.headers)
        if self.type != "oauth" or has_credential:
            raise ConfigError(_CREDENTIAL_BESIDE, field="auth.type")
        msgspec.structs.force_setattr(self, "oauth", OAuth.of(self.oauth))

    @property
    def may_send_nothing(self) -> bool:
        """Whether its provider only sends a credential that is stored already, so that it may send none at all."""
        return isinstance(self.provider, StoredCredentials) and self.provider.only_stored

    @classmethod
    def of(cls, value: object) -> Auth | None:
        """Make an `Auth` from any accepted form; None stays None.

        The string `oauth` and an `OAuth` sign in, any other string or `Secret` is a bearer token, a mapping is an
        entry's `auth` object, and any other object is a provider.

        Raises:
            ConfigError: As the class.
        """
        if value is None or isinstance(value, Auth):
            return value
        if isinstance(value, OAuth):
            return cls(type="oauth", oauth=value)
        if isinstance(value, (str, Secret)):
            if _names_sign_in(value):
                return cls(type="oauth")
            return cls(token=wrap(value))
        entry = as_object(value)
        if entry is not None:
            return cls(**_arguments(entry))
        if isinstance(value, _NO_PROVIDER):
            raise ConfigError(f"'auth' must be an object with 'type', not {kind_of(value)}", field="auth")
        return cls(type="custom", provider=value)

    def to_mapping(self) -> Json:
        """Return the entry's `auth` object with the credentials still wrapped."""
        if self.oauth is not None:
            return {"type": self.type, **self.oauth.to_mapping()}
        out: Json = {"type": self.type}
        if self.token is not None:
            out["token"] = self.token
        if self.header != _DEFAULT_HEADER[self.type]:
            out["header"] = self.header
        if self.headers:
            out["headers"] = dict(self.headers)
        if self.provider is not None:
            out["provider"] = self.provider
        return {**self.options, **out}

    def secrets(self) -> tuple[str, ...]:
        """Return every credential in it, for masking."""
        values = list(self.headers.values())
        if self.token is not None:
            values.append(self.token)
        found = [reveal(value) for value in values if value]
        found += secrets_in_options(self.options)
        if self.oauth is not None:
            found += self.oauth.secrets()
        return tuple(found)

    def __hash__(self) -> int:
        return hash((self.type, self.token, self.header, self.oauth))

    def __repr__(self) -> str:
        parts = [f"type={self.type!r}"]
        if self.token is not None:
            parts.append(f"token={self.token!r}")
        if self.header:
            parts.append(f"header={self.header!r}")
        if self.headers:
            parts.append(f"headers={dict(self.headers)!r}")
        if self.provider is not None:
            parts.append(f"provider={type(self.provider).__name__}")
        if self.oauth is not None:
            parts.append(f"oauth={self.oauth!r}")
        return f"Auth({', '.join(parts)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.to_mapping(),)


AuthSetting: TypeAlias = Auth | OAuth | Secret | str | Mapping[str, Any] | AuthProvider | None
"""The values of the setting `auth` of a server; see `Auth.of`."""


def _refuse_method(token: str | Secret) -> None:
    """Refuse the name of an authorization method as a token: it would be sent as the token."""
    # "auth": "bearer" without a token is a slip, and every request would carry `Authorization: Bearer bearer`.
    word = _word(token)
    if word in _SIGN_IN:
        raise ConfigError(_CREDENTIAL_BESIDE, field="auth")
    if word in _METHODS:
        raise ConfigError(
            f"'auth' is the word {reveal(token)!r}, which would be sent as a token; give the token itself, or "
            "{'type': 'bearer', 'token': ...}",
            field="auth",
        )


def _word(text: str | Secret) -> str:
    return reveal(text).strip().lower().replace("-", "_")


def _names_sign_in(value: str | Secret) -> bool:
    return _word(value) in _SIGN_IN


def _rebuild(entry: JsonObject) -> Auth:
    return Auth(**_arguments(entry))


def _arguments(entry: JsonObject) -> Json:
    kind = entry.get("type", "")
    if isinstance(kind, str) and _names_sign_in(kind):
        if {"token", "headers", "provider"} & entry.keys():
            raise ConfigError(_CREDENTIAL_BESIDE, field="auth")
        return {"type": "oauth", "oauth": OAuth.of(entry)}
    # Of several names for the token the first one counts, so that an alias cannot replace it further down.
    known: Json = {}
    options: Json = {}
    for key, value in entry.items():
        target = _KEYS.get(key)
        if target is None:
            options[str(key)] = value
        elif value is not None:
            known.setdefault(target, value)
    method = known.get("type", "bearer")
    if not isinstance(method, str):
        raise ConfigError("'auth.type' must be a string", field="auth.type")
    method = method.replace("-", "_").lower()
    if method == "apikey":
        method = "api_key"
    return {**known, "type": method, "options": options}
