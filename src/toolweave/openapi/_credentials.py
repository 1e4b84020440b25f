"""The credentials of requests, in the places that the security schemes of a document require. Sends nothing."""

from __future__ import annotations

import inspect
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast
from urllib.parse import quote

from toolweave._json_types import Json, JsonObject, as_object
from toolweave.config import Auth, OAuth, Secret, reveal
from toolweave.errors import ConfigError
from toolweave.openapi._client_tokens import ClientTokens, client_tokens
from toolweave.openapi._document import ApiDocument, UnusablePart

_OF_CLIENTS = ("oauth2", "openIdConnect")

ApiAuth: TypeAlias = Auth | OAuth | str | Secret | tuple[str, str | Secret] | JsonObject | Callable[[], Any] | None
"""A token, a pair of user and password, an `Auth`, an `OAuth` with the id and secret of a client, a callable that
returns a token, a pair or headers, or a mapping from the names of security schemes to any of these."""


_BEARER: Json = {"type": "http", "scheme": "bearer"}


@dataclass(slots=True)
class AppliedCredentials:
    """Credentials by the part of the request that contains them: names and values."""

    headers: dict[str, str] = field(default_factory=dict[str, str])
    query: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    cookies: list[str] = field(default_factory=list[str])

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values, for masking."""
        found: list[str] = []
        for value in self.headers.values():
            found.append(value)
            # without `Bearer`: an error may repeat the token alone
            found.append(value.rpartition(" ")[2])
        found += [value for _, value in self.query]
        found += [cookie.partition("=")[2] for cookie in self.cookies]
        return tuple(found)


class ApiCredentials:
    """The credentials of one document's requests.

    Args:
        auth: The credentials.
        document: The document.
        trusted: The URLs that a person has given, whose kinds of address an authorization server may have.

    At most one of three forms is set after the constructor: credentials by the name of their scheme, one credential for
    whichever scheme an operation requires, or an `Auth` whose headers do not depend on schemes.

    Raises:
        ConfigError: The credentials have an unknown form, or are for a scheme that the document does not have.
    """

    def __init__(self, auth: ApiAuth, document: ApiDocument, trusted: Iterable[str] = ()) -> None:
        self._schemes = _schemes(document)
        self._declared = "security" in document.root or bool(self._schemes)
        self._named: Json = {}
        self._one: object = None
        self._fixed: Auth | None = None
        members = as_object(auth)
        if members is not None:
            self._read_members(members, document, trusted)
        elif isinstance(auth, (Auth, OAuth)):
            self._fixed = Auth.of(auth)
        elif isinstance(auth, (str, Secret)):
            self._read_text(auth)
        elif auth is None or isinstance(auth, tuple) or callable(auth):
            self._one = auth
        else:
            raise ConfigError(f"'auth' is not a credential but of type {type(auth).__name__}", field="auth")
        self._read_fixed(document, trusted)

    def _read_members(self, auth: JsonObject, document: ApiDocument, trusted: Iterable[str]) -> None:
        """Read an object: credentials by the name of their scheme, the settings of a client, or those of an `Auth`."""
        if auth and auth.keys() <= self._schemes.keys():
            for name, given in auth.items():
                client = self._client(name, given, document, trusted)
                self._named[name] = given if client is None else client
        elif _names_client(auth):
            self._fixed = Auth.of(OAuth.of(auth))
        elif "type" in auth:
            self._fixed = Auth.of(auth)
        else:
            known = ", ".join(sorted(self._schemes)) or "none"
            raise ConfigError(
                f"'auth' names other security schemes than the document, which has: {known}", field="auth"
            )

    def _read_text(self, text: str | Secret) -> None:
        made = Auth.of(text)
        if made is None:
            return
        self._one = made.token
        if made.oauth is not None:
            self._fixed = made

    def _read_fixed(self, document: ApiDocument, trusted: Iterable[str]) -> None:
        """Check an `Auth`; one that names a client is for the one scheme that gives tokens to clients."""
        if self._fixed is None:
            return
        if self._fixed.oauth is not None:
            found = [name for name, one in self._schemes.items() if one.get("type") in _OF_CLIENTS]
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

    def _client(self, name: str, given: object, document: ApiDocument, trusted: Iterable[str]) -> ClientTokens | None:
        """Return the tokens of a client that is given as a credential, or None."""
        members = as_object(given)
        if members is not None and _names_client(members):
            given = OAuth.of(members)
        if not isinstance(given, OAuth):
            return None
        return client_tokens(name, self._schemes[name], given, url=document.url, trusted=trusted)

    def refused(self) -> None:
        """Get new tokens for the next request, because the API has refused the current ones."""
        for one in self._named.values():
            if isinstance(one, ClientTokens):
                one.forget()

    @property
    def places(self) -> frozenset[tuple[str, str]]:
        """Location and name of the parameters that contain credentials."""
        if self._one is None and not self._named:
            return frozenset()
        found: set[tuple[str, str]] = set()
        for name, scheme in self._schemes.items():
            # One credential without a name may be for any scheme.
            if self._named and name not in self._named:
                continue
            is_key = scheme.get("type") == "apiKey" and {"in", "name"} <= scheme.keys()
            if not is_key:
                continue
            parameter = scheme["name"]
            if scheme["in"] == "header":
                parameter = parameter.lower()
            found.add((scheme["in"], parameter))
        return frozenset(found)

    async def apply(self, security: Sequence[Sequence[str]] | None) -> AppliedCredentials:
        """Return the credentials for a request of an operation with this `security`; none if it requires none.

        Raises:
            ToolweaveError: A callable of the user raised it.
        """
        made = AppliedCredentials()
        if security is not None and not any(security):
            return made
        alternatives = security or ()
        if self._fixed is not None:
            made.headers |= await _fixed_headers(self._fixed)
        elif self._one is not None:
            scheme = self._scheme_of_one(alternatives)
            if scheme is not None:
                _apply(made, scheme, await _obtained(self._one))
        else:
            for name in self._usable(alternatives):
                _apply(made, self._schemes[name], await _obtained(self._named[name]))
        return made

    def _scheme_of_one(self, alternatives: Sequence[Sequence[str]]) -> JsonObject | None:
        """Return the scheme that the one credential is for, or None if the document has schemes and none fits."""
        for names in alternatives:
            if len(names) == 1 and names[0] in self._schemes:
                return self._schemes[names[0]]
        if self._declared:
            return None
        return _BEARER

    def _usable(self, alternatives: Sequence[Sequence[str]]) -> Sequence[str]:
        """Return the first alternative with a credential for each of its schemes, or nothing."""
        for names in alternatives:
            if names and self._named.keys() >= set(names):
                return names
        return ()


def _names_client(given: JsonObject) -> bool:
    return "client_id" in given or "clientId" in given


def _schemes(document: ApiDocument) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for name, node in document.objects("components", "securitySchemes").items():
        try:
            found[name] = document.follow(node, f"/components/securitySchemes/{name}")[0]
        except UnusablePart:
            continue
    return found


async def _obtained(credential: Any) -> Any:
    """Return a credential, or the one that a callable returns."""
    if not callable(credential):
        return credential
    credential = credential()
    if inspect.isawaitable(credential):
        credential = await credential
    return credential


def _apply(made: AppliedCredentials, scheme: JsonObject, credential: Any) -> None:
    headers = as_object(credential)
    if headers is not None:
        made.headers |= _headers(headers)
        return
    if scheme.get("type") == "apiKey":
        _apply_key(made, scheme, _text(credential))
        return
    if scheme.get("type") == "http":
        kind = str(scheme.get("scheme", "bearer")).lower()
    else:
        kind = "bearer"
    text = _text(credential)
    if kind == "basic" or isinstance(credential, tuple):
        kind = "basic"
        text = b64encode(text.encode()).decode("ascii")
    made.headers["authorization"] = f"{kind.capitalize()} {text}"


def _apply_key(made: AppliedCredentials, scheme: JsonObject, key: str) -> None:
    name = str(scheme.get("name", ""))
    match scheme.get("in"):
        case "header":
            made.headers[name.lower()] = key
        case "query":
            made.query.append((quote(name, safe=""), quote(key, safe="")))
        case "cookie":
            made.cookies.append(f"{name}={key}")
        case _:
            # a location of a later version of OpenAPI: the error of the API is clearer than a guess
            pass


def _text(credential: Any) -> str:
    """Return a token, or user and password as one text."""
    if isinstance(credential, tuple):
        return ":".join(map(reveal, cast("tuple[str | Secret, ...]", credential)))
    return reveal(credential)


def _headers(given: JsonObject) -> dict[str, str]:
    return {str(name).lower(): reveal(value) for name, value in given.items()}


async def _fixed_headers(auth: Auth) -> dict[str, str]:
    made = _headers(auth.headers)
    token: Any = auth.token
    if auth.provider is not None:
        token = await _obtained(auth.provider)
    headers = as_object(token)
    if headers is not None:
        return made | _headers(headers)
    if token is None:
        return made
    value = reveal(token)
    if not auth.header or auth.type == "bearer":
        value = f"Bearer {value}"
    name = auth.header or "Authorization"
    made[name.lower()] = value
    return made
