"""MCP clients: registered by hand, by a document at their own URL, or dynamically (RFC 7591).

A document names its client by a URL, and is fetched from public addresses only.
"""

# Dynamic registration is open to everyone, so it must not cost much: the number of registrations per minute and per day
# is limited over all replicas, and a client is forgotten after a day unless a person has consented to it. A metadata
# document proves only that the owner of its URL wrote it, so the consent page shows the host.

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar
from urllib.parse import urlsplit

import msgspec

from toolweave._json_types import Json, JsonObject, array_or_empty, text_entries
from toolweave._option_checks import (
    COUNT,
    FLAG,
    TEXT,
    TEXTS,
    check_kinds,
    check_number,
    check_predicate,
    decided,
    list_of,
)
from toolweave._value import Value
from toolweave.config import is_loopback
from toolweave.errors import StoreError, printable
from toolweave.oauth._single_flight import SingleFlight
from toolweave.oauth.fetch import FetchFailed, GuardedFetch
from toolweave.serve._auth.refusal import IssuerUnavailable
from toolweave.serve._oauth_server.keys import digest, new_secret
from toolweave.serve._oauth_server.redirect_uris import redirect_problem
from toolweave.state import Store

_CLIENTS = "toolweave.oauth.clients"
_QUOTAS = "toolweave.oauth.quotas"
_METHODS = ("none", "client_secret_basic", "client_secret_post")
_GRANTS = ("authorization_code", "refresh_token")
_DAY = 86_400.0
_MAX_URIS = 10
_MAX_NAME = 100
_DOCUMENT_BYTES = 20_000
_DOCUMENT_SECONDS = 300.0
_MAX_DOCUMENTS = 1000
_FETCH_SECONDS = 20.0
APP_SCHEMES = ("cursor", "vscode", "vscode-insiders", "windsurf", "zed")
"""Schemes without a dot that well-known MCP clients register."""


class OAuthRefusal(Exception):
    """A private signal: the response is an OAuth error.

    Attributes:
        error: The error code.
        status: The HTTP status, if the response is not a redirect.
        retry_after: Seconds after which it may be tried again, or 0.
    """

    def __init__(self, error: str, description: str, *, status: int = 400, retry_after: int = 0) -> None:
        super().__init__(description)
        self.error = error
        self.status = status
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """A client that is registered by hand.

    Attributes:
        client_id: Its id.
        redirect_uris: Its redirect URIs.
        name: Its human-readable name.
        client_secret: Its secret; None for a public client.

    Raises:
        TypeError: A value has another type.
    """

    client_id: str
    redirect_uris: Sequence[str]
    name: str = ""
    client_secret: str | None = None

    def __post_init__(self) -> None:
        check_kinds(self, _CLIENT_KINDS, owner="OAuthClient")

    def __repr__(self) -> str:
        return f"OAuthClient(client_id={self.client_id!r}, redirect_uris={list(self.redirect_uris)!r})"


_CLIENT_KINDS = {"client_id": TEXT, "redirect_uris": TEXTS, "name": TEXT, "client_secret": TEXT.or_none}
_RULE_KINDS = {
    "clients": list_of(OAuthClient, "a list of OAuthClient(...)"),
    # A text such as "false" would count as true, and open the server to every client.
    "documents": FLAG,
    "registration": FLAG,
    "schemes": TEXTS,
    "per_minute": COUNT,
    "per_day": COUNT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRules:
    """Which MCP clients an `OAuthServer` accepts.

    Attributes:
        clients: Clients that are registered by hand.
        documents: Accept clients that are named by the URL of their metadata document (CIMD).
        registration: Accept dynamic registration (RFC 7591).
        schemes: Schemes without a dot that redirect URIs may have.
        redirect_allowed: Returns whether a redirect URI that is well-formed is accepted; None accepts all.
        per_minute: The maximum number of registrations per minute, over all replicas.
        per_day: The maximum number of registrations per day, over all replicas.
        unused_days: The number of days for which a client is stored after its last use.

    Raises:
        ConfigError: A number is negative or not finite.
        TypeError: A value has another type, or `redirect_allowed` is async.
    """

    clients: Sequence[OAuthClient] = ()
    documents: bool = True
    registration: bool = True
    schemes: Sequence[str] = APP_SCHEMES
    redirect_allowed: Callable[[str], bool] | None = None
    per_minute: int = 60
    per_day: int = 5000
    unused_days: float = 90

    def __post_init__(self) -> None:
        check_kinds(self, _RULE_KINDS, owner="ClientRules")
        check_predicate("ClientRules.redirect_allowed", self.redirect_allowed)
        for name in ("per_minute", "per_day", "unused_days"):
            check_number(f"ClientRules.{name}", getattr(self, name))

    def problem_of(self, uri: object) -> str | None:
        """Return why a redirect URI is not accepted, or None."""
        problem = redirect_problem(uri, self.schemes)
        if problem is not None or self.redirect_allowed is None:
            return problem
        if decided("ClientRules.redirect_allowed", self.redirect_allowed(str(uri))):
            return None
        return "it is not allowed here"


class KnownClient(Value, frozen=True, kw_only=True):
    """A client, with the facts that its requests are checked against.

    Attributes:
        client_id: Its id.
        name: The name in its metadata, cut and without control characters.
        redirect_uris: Its redirect URIs.
        method: How it authenticates at the token endpoint.
        secret_digest: The digest of its secret.
        refreshes: Whether it gets refresh tokens.
        source: `static`, `document` or `registration`.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"secret_digest"})

    client_id: str
    name: str
    redirect_uris: tuple[str, ...]
    method: str = "none"
    secret_digest: str = ""
    refreshes: bool = True
    source: str = "static"

    def has_secret(self, secret: str) -> bool:
        """Whether this is its secret."""
        return hmac.compare_digest(self.secret_digest.encode(), digest(secret).encode())


class Clients:
    """The clients of one authorization server.

    Args:
        rules: Which ones are accepted.
        store: Stores clients that register dynamically.
        issuer: The server's own URL. On loopback, documents on loopback are also accepted.
    """

    def __init__(self, rules: ClientRules, store: Store, issuer: str) -> None:
        self.rules = rules
        self._store = store
        self._local = is_loopback(urlsplit(issuer).hostname)
        self._static = {one.client_id: _static(one) for one in rules.clients}
        self._fetch = GuardedFetch([issuer] if self._local else [])
        self._documents: dict[str, tuple[float, KnownClient]] = {}
        self._work = SingleFlight[KnownClient](_FETCH_SECONDS, late=partial(IssuerUnavailable, _FETCH_SECONDS))

    async def find(self, client_id: str) -> KnownClient | None:
        """Return a client, or None.

        Raises:
            OAuthRefusal: Its id is the URL of a document that cannot be used.
        """
        known = self._static.get(client_id)
        if known is not None:
            return known
        if self.rules.documents and self._is_document(client_id):
            return await self._documented(client_id)
        # By the digest: an id comes from a request, and may be of any length and have any character.
        found = await self._store.get(_CLIENTS, digest(client_id))
        if found is None:
            return None
        return msgspec.convert(found.value, KnownClient)

    async def keep(self, client: KnownClient) -> None:
        """Store a dynamically registered client that is in use."""
        if client.source == "registration":
            ttl = self.rules.unused_days * _DAY
            await self._store.put(_CLIENTS, digest(client.client_id), msgspec.to_builtins(client), ttl=ttl)

    async def register(self, asked: JsonObject) -> Json:
        """Register a client; return the client information response (RFC 7591, 3.2.1).

        Raises:
            OAuthRefusal: Its metadata are not accepted, or there are too many registrations.
        """
        uris = self._redirect_uris(asked.get("redirect_uris"))
        method = asked.get("token_endpoint_auth_method") or "client_secret_basic"
        grants = _texts(asked.get("grant_types"), ["authorization_code"])
        response_types = _texts(asked.get("response_types"), ["code"])
        if method not in _METHODS:
            raise OAuthRefusal("invalid_client_metadata", f"token_endpoint_auth_method is one of {', '.join(_METHODS)}")
        # Refused and not reduced: a client that asks for the implicit grant would wait for a token in the redirect.
        if "authorization_code" not in grants or response_types != ["code"]:
            raise OAuthRefusal("invalid_client_metadata", "only the authorization code grant is offered")
        # After all checks of the metadata, so that malformed requests do not use up the registrations of others.
        await self._quota("minute", self.rules.per_minute, 60)
        await self._quota("day", self.rules.per_day, int(_DAY))
        client = KnownClient(
            client_id=new_secret(),
            name=_shown(asked.get("client_name")),
            redirect_uris=uris,
            method=method,
            refreshes="refresh_token" in grants,
            source="registration",
        )
        secret = new_secret()
        if method != "none":
            client = client.replace(secret_digest=digest(secret))
        try:
            await self._store.put(_CLIENTS, digest(client.client_id), msgspec.to_builtins(client), ttl=_DAY)
        except StoreError:
            raise OAuthRefusal("temporarily_unavailable", "no room for clients", status=503, retry_after=3600) from None
        information: Json = {
            "client_id": client.client_id,
            "client_id_issued_at": int(time.time()),
            "client_name": client.name,
            "redirect_uris": list(uris),
            "grant_types": [grant for grant in _GRANTS if grant in grants],
            "response_types": ["code"],
            "token_endpoint_auth_method": method,
        }
        if method != "none":
            information |= {"client_secret": secret, "client_secret_expires_at": 0}
        return information

    def _redirect_uris(self, given: object) -> tuple[str, ...]:
        uris = array_or_empty(given)
        if not 0 < len(uris) <= _MAX_URIS:
            raise OAuthRefusal("invalid_redirect_uri", f"redirect_uris is a list of 1 to {_MAX_URIS} URIs")
        for uri in uris:
            problem = self.rules.problem_of(uri)
            if problem is not None:
                raise OAuthRefusal("invalid_redirect_uri", f"a redirect URI is not accepted: {problem}")
        return tuple(uris)

    async def _quota(self, name: str, limit: int, seconds: int) -> None:
        """Count a registration, over all replicas.

        Raises:
            OAuthRefusal: There are too many in this time.
        """
        number = int(time.time()) // seconds
        key = f"{name}:{number}"
        # The count is written at the revision that was read. A write that fails was overtaken by another replica, and
        # the count is read again.
        for _ in range(20):
            found = await self._store.get(_QUOTAS, key)
            count = 0
            revision = 0
            if found is not None:
                count = int(found.value)
                revision = found.revision
            if count >= limit:
                break
            if await self._store.put(_QUOTAS, key, count + 1, ttl=2 * seconds, expect=revision) is not None:
                return
        wait = max(1, (number + 1) * seconds - int(time.time()))
        raise OAuthRefusal("too_many_requests", "too many clients register now", status=429, retry_after=wait)

    def _is_document(self, client_id: str) -> bool:
        try:
            parts = urlsplit(client_id)
            host = parts.hostname
        except ValueError:
            return False
        if parts.path in ("", "/"):
            return False
        if parts.scheme == "http":
            return self._local and is_loopback(host)
        return parts.scheme == "https"

    async def _documented(self, url: str) -> KnownClient:
        known = self._documents.get(url)
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        client = await self._work.run(url, partial(self._read_document, url))
        # The oldest one: a document is read again at little cost, and a stranger chooses the URLs.
        if len(self._documents) >= _MAX_DOCUMENTS:
            self._documents.pop(next(iter(self._documents)))
        self._documents[url] = (time.monotonic() + _DOCUMENT_SECONDS, client)
        return client

    async def _read_document(self, url: str) -> KnownClient:
        """Return the client of a document, whose `client_id` is the URL of the document."""
        try:
            answer = await self._fetch.get(url, "the client's metadata document")
            # The id is the URL itself. Behind a redirect, another host could write what the owner of this one seems to
            # say.
            is_moved = answer.url != url
            if answer.status != 200 or is_moved or len(answer.body) > _DOCUMENT_BYTES:
                raise OAuthRefusal("invalid_client", "the client's metadata document cannot be read")
            document = answer.decoded(Json)
        except FetchFailed:
            raise OAuthRefusal("invalid_client", "the client's metadata document cannot be fetched") from None
        # Otherwise anybody could publish a document under the name of another client.
        if document.get("client_id") != url:
            raise OAuthRefusal("invalid_client", "the client's metadata document names another client")
        # A secret that everybody can read authenticates nobody, so it must not look as if it did.
        if document.get("token_endpoint_auth_method", "none") != "none" or "client_secret" in document:
            raise OAuthRefusal("invalid_client", "a client with a metadata document authenticates by 'none'")
        return KnownClient(
            client_id=url,
            name=_shown(document.get("client_name")),
            redirect_uris=self._redirect_uris(document.get("redirect_uris")),
            refreshes="refresh_token" in _texts(document.get("grant_types"), list(_GRANTS)),
            source="document",
        )


def _static(client: OAuthClient) -> KnownClient:
    known = KnownClient(
        client_id=client.client_id,
        name=_shown(client.name),
        redirect_uris=tuple(client.redirect_uris),
    )
    if client.client_secret is None:
        return known
    return known.replace(method="client_secret_basic", secret_digest=digest(client.client_secret))


def _texts(value: object, default: list[str]) -> list[str]:
    if value is None:
        return default
    return text_entries(value)


def _shown(name: object) -> str:
    """Return a name for the consent page: one short line."""
    if not isinstance(name, str):
        return ""
    plain = "".join(char for char in printable(name) if char.isprintable())
    return plain[:_MAX_NAME].strip()
