"""Opaque access tokens, asked about at their issuer (RFC 7662).

An answer is cached for half a minute at most, so a revoked token is refused that much later.
"""

# Many requests with one token ask once (single flight). Accepted and refused tokens have separate caches, because
# refused tokens cost nothing to invent and must not displace the others. If the issuer cannot be reached, the token may
# be valid, so the answer is 503 and not 401.

from __future__ import annotations

import logging
import time
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import Literal, TypeVar, Unpack
from urllib.parse import quote_plus

from toolweave._json_types import Json, JsonObject
from toolweave._option_checks import TEXT, check_kinds, check_number
from toolweave.config import Secret
from toolweave.errors import ConfigError
from toolweave.oauth._single_flight import SingleFlight
from toolweave.serve._auth.claims import (
    ExpectedClaims,
    TokenProblem,
    check_kind,
    identity_of_claims,
    is_time,
    shown,
)
from toolweave.serve._auth.documents import NoDocument, ask_issuer, check_issuer_url
from toolweave.serve._auth.issuer_guard import IssuerGuard
from toolweave.serve._auth.issuer_keys import url_in_metadata
from toolweave.serve._auth.refusal import IssuerUnavailable
from toolweave.serve._auth.token_auth import IssuerOptions, TokenAuth, own_metadata, text_list
from toolweave.serve._option_kinds import SECRET_TEXT
from toolweave.serve.request import Identity

_log = logging.getLogger("toolweave.serve._auth")

_MAX_CACHED = 10_000
_SECONDS = 45.0
_Found = TypeVar("_Found")
_TOKEN_TYPES = frozenset({"bearer", "dpop"})
_KINDS = {
    "issuer": TEXT,
    "client_id": TEXT,
    "client_secret": SECRET_TEXT,
    "introspection_url": TEXT.or_none,
}


class IntrospectionAuth(TokenAuth):
    """Accepts opaque tokens that their issuer calls active, for listed audiences (RFC 7662).

    While the issuer cannot be reached, requests are answered with 503 and `Retry-After`. For each refused token, one
    line of the log `toolweave.serve._auth` names the claim, the expected value and the received one.

    Args:
        issuer: The issuer of the tokens, and the `iss` of an answer that has one.
        audience: The exact `aud` of an answer, or a member of it: the endpoint's own URL, or the issuer's name for it;
            one, or several. A token for another audience is never accepted.
        client_id: The client id of this server at the issuer.
        client_secret: Its secret.
        introspection_url: The introspection endpoint; by default it is in the issuer's metadata.
        method: The authentication method of the client.
        cache_seconds: Seconds for which an answer is cached, 0 for never; a token is never cached beyond its `exp`.
        **options: See `IssuerOptions`; when an `audience` is a URL, `resource` and `authorization_servers` default
            to it and the issuer.

    Raises:
        ConfigError: A URL is not an `https` URL (`http` is accepted for this machine), a number is negative or
            not finite, or there is neither an audience nor a client.
        TypeError: A value has another type.
    """

    def __init__(
        self,
        *,
        issuer: str,
        audience: str | Sequence[str],
        client_id: str,
        client_secret: str | Secret,
        introspection_url: str | None = None,
        method: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic",
        cache_seconds: float = 30,
        **options: Unpack[IssuerOptions],
    ) -> None:
        named = {
            "issuer": issuer,
            "client_id": client_id,
            "client_secret": client_secret,
            "introspection_url": introspection_url,
        }
        check_kinds(named, _KINDS, owner="IntrospectionAuth")
        check_number("IntrospectionAuth.cache_seconds", cache_seconds)
        if method not in ("client_secret_basic", "client_secret_post"):
            raise ConfigError(f"IntrospectionAuth: method is client_secret_basic or _post, not {method!r}")
        asked = _Introspection(issuer, introspection_url, client_id, Secret(client_secret), method)
        clients = text_list(options.pop("client_ids", ()), "client_ids", empty=True)
        audiences = text_list(audience, "audience", empty=bool(clients))
        expected = ExpectedClaims(audiences=audiences, client_ids=clients, must_expire=False)
        verifier = _Introspector(asked, expected, cache_seconds)
        super().__init__(verifier, **own_metadata(audiences, (issuer,), options))


class _Introspection:
    """The introspection endpoint of an issuer."""

    def __init__(self, issuer: str, url: str | None, client_id: str, secret: Secret, method: str) -> None:
        if url is None:
            check_issuer_url(issuer, "issuer")
        else:
            check_issuer_url(url, "introspection_url")
        self.issuer = issuer
        self._named = url or issuer
        self._url = url
        self._fields: dict[str, str] = {"token_type_hint": "access_token"}
        self._headers: dict[str, str] = {}
        if method == "client_secret_post":
            self._fields |= {"client_id": client_id, "client_secret": secret.reveal()}
        else:
            # both are form-encoded first (RFC 6749, 2.3.1)
            pair = f"{quote_plus(client_id)}:{quote_plus(secret.reveal())}"
            self._headers["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"

    async def ask(self, token: str) -> Json:
        """Return the answer about a token.

        Raises:
            NoDocument: The issuer returned no usable answer.
        """
        if self._url is None:
            self._url = await self._published_at()
        form = {"token": token, **self._fields}
        status, answer = await ask_issuer(self._url, form=form, headers=self._headers, named=self._named)
        if status in (400, 401, 403):
            raise NoDocument(f"it refuses to answer this server's client with status {status}; check its credentials")
        if status != 200:
            raise NoDocument(f"it answered with status {status}")
        return answer

    async def _published_at(self) -> str:
        return await url_in_metadata(self.issuer, "introspection_endpoint")


class _Introspector:
    """Verifies tokens at the issuer, with a cache of identities and of reasons why tokens were refused."""

    def __init__(
        self, asked: _Introspection, expected: ExpectedClaims, cache_seconds: float, guard: IssuerGuard | None = None
    ) -> None:
        self._asked = asked
        self._expected = expected
        self._seconds = cache_seconds
        self._known: OrderedDict[bytes, tuple[float, Identity]] = OrderedDict()
        self._refused: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._work = SingleFlight[Identity | str](_SECONDS, late=partial(IssuerUnavailable, _SECONDS))
        self._guard = guard or IssuerGuard()

    def also(self, audience: str) -> _Introspector:
        """Return a verifier that accepts tokens for one more audience."""
        return _Introspector(self._asked, self._expected.also(audience), self._seconds, self._guard)

    async def __call__(self, token: str) -> Identity:
        return await self.judge(token, "")

    async def judge(self, token: str, address: str) -> Identity:
        """Return the identity of a token that an address sent; see `AsksIssuer`."""
        found = await self._found(token, address)
        if isinstance(found, str):
            raise TokenProblem(found)
        return found

    async def _found(self, token: str, address: str) -> Identity | str:
        key = sha256(token.encode("utf-8", "surrogateescape")).digest()
        known = self._known.get(key) or self._refused.get(key)
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        if not self._work.runs(key):
            self._guard.check(address, proven=key in self._known)
        return await self._work.run(key, partial(self._ask, token, key, address))

    async def _ask(self, token: str, key: bytes, address: str) -> Identity | str:
        proven = key in self._known
        async with self._guard.turn(address):
            # once more: the issuer may have refused other tokens of this address during the wait
            self._guard.check_refused(address, proven=proven)
            try:
                claims = await self._asked.ask(token)
            except NoDocument as exc:
                _log.error("issuer %r cannot be asked about a token: %s", self._asked.issuer, exc)
                raise IssuerUnavailable(self._guard.failed(address, proven=proven)) from None
        self._guard.answered()
        try:
            found: Identity | str = self._judged(claims)
        except TokenProblem as exc:
            found = str(exc)
            self._guard.refused(address)
        self._remember(key, found)
        return found

    def _judged(self, claims: JsonObject) -> Identity:
        """Return the identity of an answer.

        An `exp` that is not a time is ignored, because the issuer itself has confirmed that the token is active.

        Raises:
            TokenProblem: The token is not valid for this endpoint.
        """
        if claims.get("active") is not True:
            raise TokenProblem(f"'active' is {shown(claims.get('active'))}, expected True")
        kind = claims.get("token_type", "bearer")
        if str(kind).lower() not in _TOKEN_TYPES:
            raise TokenProblem(f"'token_type' is {shown(kind)}, expected an access token")
        check_kind(claims)
        known: Json = {"iss": self._asked.issuer, **claims}
        for name in ("exp", "nbf", "iat"):
            if not is_time(known.get(name)):
                known.pop(name, None)
        self._expected.check(known, self._asked.issuer, now=time.time())
        return identity_of_claims({"iss": self._asked.issuer, **claims}, expires_at=self._expected.end_of(known))

    def _remember(self, key: bytes, found: Identity | str) -> None:
        left = self._seconds
        if isinstance(found, Identity) and found.expires_at is not None:
            left = min(left, found.expires_at - time.time())
        if left <= 0:
            return
        until = time.monotonic() + left
        if isinstance(found, Identity):
            self._refused.pop(key, None)
            _keep(self._known, key, (until, found))
        else:
            self._known.pop(key, None)
            _keep(self._refused, key, (until, found))


def _keep(memory: OrderedDict[bytes, _Found], key: bytes, found: _Found) -> None:
    memory[key] = found
    memory.move_to_end(key)
    if len(memory) > _MAX_CACHED:
        memory.popitem(last=False)
