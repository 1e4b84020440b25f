"""The credentials of requests, placed as the security schemes of a document say. Sends nothing."""

from __future__ import annotations

import inspect
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast
from urllib.parse import quote

from toolweave.config import Auth, OAuth, Secret, reveal
from toolweave.errors import ConfigError
from toolweave.openapi._client_tokens import ClientTokens, client_tokens
from toolweave.openapi._document import ApiDocument, UnusablePart

_OF_CLIENTS = ("oauth2", "openIdConnect")

ApiAuth: TypeAlias = (
    Auth | OAuth | str | Secret | tuple[str, str | Secret] | Mapping[str, Any] | Callable[[], Any] | None
)
"""A token, a pair of user and password, an `Auth`, an `OAuth` with the id and secret of a client, a callable that
returns a token, a pair or headers, or a mapping from the names of security schemes to any of these."""


@dataclass(slots=True)
class Placed:
    """Credentials by the part of the request they go to: names and values."""

    headers: dict[str, str] = field(default_factory=dict[str, str])
    query: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    cookies: list[str] = field(default_factory=list[str])

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values, for masking."""
        words = [word for value in self.headers.values() for word in (value, value.rpartition(" ")[2])]
        return tuple(words + [value for _, value in self.query] + [one.partition("=")[2] for one in self.cookies])


class ApiCredentials:
    """The credentials of one document's requests.

    Args:
        auth: The credentials.
        document: The document.
        trusted: The URLs that a person has given, whose kinds of address an authorization server may have.

    Raises:
        ConfigError: They are of no known form, or for a scheme that the document does not have.
    """

    def __init__(self, auth: ApiAuth, document: ApiDocument, trusted: Iterable[str] = ()) -> None:
        self._schemes = _schemes(document)
        self._declared = "security" in document.root or bool(self._schemes)
        self._named: dict[str, Any] = {}
        self._one: Any = None
        self._fixed: Auth | None = None
        if isinstance(auth, Mapping) and auth and not (auth.keys() - self._schemes.keys()):
            self._named = {
                name: self._client(name, given, document, trusted) or given
                for name, given in cast("Mapping[str, Any]", auth).items()
            }
        elif isinstance(auth, Mapping) and _names_client(cast("Mapping[str, Any]", auth)):
            self._fixed = Auth.of(OAuth.of(auth))
        elif isinstance(auth, Mapping) and "type" not in auth:
            known = ", ".join(sorted(self._schemes)) or "none"
            raise ConfigError(
                f"'auth' names other security schemes than the document, which has: {known}", field="auth"
            )
        elif isinstance(auth, (Auth, OAuth, Mapping)):
            self._fixed = Auth.of(auth)
        elif isinstance(auth, (str, Secret)):
            made = Auth.of(auth)
            self._one = None if made is None else made.token
            if made is not None and made.oauth is not None:
                self._fixed = made
            else:
                self._fixed = None
        elif auth is None or isinstance(auth, tuple) or callable(auth):
            self._one = auth
        else:
            raise ConfigError(f"'auth' is no credential but of type {type(auth).__name__}", field="auth")
        self._read_fixed(document, trusted)

    def _read_fixed(self, document: ApiDocument, trusted: Iterable[str]) -> None:
        """Check an `Auth`; one that names a client is of the one scheme that gives tokens to clients."""
        if self._fixed is None:
            return
        if self._fixed.oauth is not None:
            found = {name: one for name, one in self._schemes.items() if one.get("type") in _OF_CLIENTS}
            if len(found) != 1:
                raise ConfigError(
                    f"'auth' names a client, and the document has {len(found)} security schemes of OAuth: give an "
                    "object with the name of the scheme",
                    field="auth",
                )
            [name] = found
            self._named = {name: self._client(name, self._fixed.oauth, document, trusted)}
            self._fixed = None
        elif self._fixed.provider is not None and not callable(self._fixed.provider):
            raise ConfigError("'auth' is for MCP servers; give a token, or a callable that returns one", field="auth")

    def _client(self, name: str, given: Any, document: ApiDocument, trusted: Iterable[str]) -> ClientTokens | None:
        """Return the tokens of a client that is given as a credential, or None."""
        if isinstance(given, Mapping) and _names_client(cast("Mapping[str, Any]", given)):
            given = OAuth.of(given)
        if not isinstance(given, OAuth):
            return None
        return client_tokens(name, self._schemes[name], given, url=document.url, trusted=trusted)

    def refused(self) -> None:
        """Get new tokens for the next request: the API has refused those of the last one."""
        for one in self._named.values():
            if isinstance(one, ClientTokens):
                one.forget()

    @property
    def places(self) -> frozenset[tuple[str, str]]:
        """Location and name of the parameters that credentials are given in."""
        if self._one is None and not self._named:
            return frozenset()
        schemes = [one for name, one in self._schemes.items() if not self._named or name in self._named]
        return frozenset(
            (one["in"], one["name"].lower() if one["in"] == "header" else one["name"])
            for one in schemes
            if one.get("type") == "apiKey" and "in" in one and "name" in one
        )

    async def placed(self, security: Sequence[Sequence[str]] | None) -> Placed:
        """Return the credentials for a request of an operation that says `security`; none where it needs none.

        Raises:
            ToolweaveError: What a callable of the user raises goes through.
        """
        made = Placed()
        if security is not None and not any(security):
            return made
        if self._fixed is not None:
            made.headers |= await _fixed_headers(self._fixed)
            return made
        if self._one is not None:
            names = next((one for one in security or () if len(one) == 1 and one[0] in self._schemes), None)
            if names is not None or not self._declared:
                if names is None:
                    scheme = {"type": "http", "scheme": "bearer"}
                else:
                    scheme = self._schemes[names[0]]
                _place(made, scheme, await _asked(self._one))
            return made
        for names in security or ():
            if names and all(name in self._named and name in self._schemes for name in names):
                for name in names:
                    _place(made, self._schemes[name], await _asked(self._named[name]))
                break
        return made


def _names_client(given: Mapping[str, Any]) -> bool:
    return any(name in given for name in ("client_id", "clientId"))


def _schemes(document: ApiDocument) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, node in document.objects("components", "securitySchemes").items():
        try:
            found[name] = document.follow(node, f"/components/securitySchemes/{name}")[0]
        except UnusablePart:
            continue
    return found


async def _asked(credential: Any) -> Any:
    if callable(credential):
        credential = credential()
        if inspect.isawaitable(credential):
            credential = await credential
    return credential


def _place(made: Placed, scheme: Mapping[str, Any], credential: Any) -> None:
    if isinstance(credential, Mapping):
        made.headers |= {
            str(name).lower(): reveal(value) for name, value in cast("Mapping[str, Any]", credential).items()
        }
        return
    if scheme.get("type") == "apiKey":
        name = str(scheme.get("name", ""))
        token = _text(credential)
        place = scheme.get("in")
        if place == "header":
            made.headers[name.lower()] = token
        elif place == "query":
            made.query.append((quote(name, safe=""), quote(token, safe="")))
        elif place == "cookie":
            made.cookies.append(f"{name}={token}")
        return
    if scheme.get("type") == "http":
        kind = str(scheme.get("scheme", "bearer")).lower()
    else:
        kind = "bearer"
    if kind == "basic" or isinstance(credential, tuple):
        pair = _text(credential).encode()
        made.headers["authorization"] = f"Basic {b64encode(pair).decode('ascii')}"
    else:
        made.headers["authorization"] = f"{'Bearer' if kind == 'bearer' else kind.capitalize()} {_text(credential)}"


def _text(credential: Any) -> str:
    """Return a token, or user and password as one text."""
    if isinstance(credential, tuple):
        return ":".join(reveal(part) for part in cast("tuple[str | Secret, ...]", credential))
    return reveal(credential)


async def _fixed_headers(auth: Auth) -> dict[str, str]:
    made = {name.lower(): value.reveal() for name, value in auth.headers.items()}
    token: Any = auth.token if auth.provider is None else await _asked(auth.provider)
    if isinstance(token, Mapping):
        return made | {str(name).lower(): reveal(value) for name, value in cast("Mapping[str, Any]", token).items()}
    if token is not None:
        name = auth.header or "Authorization"
        made[name.lower()] = reveal(token) if auth.header and auth.type != "bearer" else f"Bearer {reveal(token)}"
    return made
