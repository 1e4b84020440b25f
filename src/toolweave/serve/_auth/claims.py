"""The checks of the claims of access tokens: issuer, audience or client, times, kind. Pure.

The reason of a refusal is for the operator's log: it names the claim, the expected value and the received one, each
shortened. No reason contains a token.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeGuard, cast
from urllib.parse import urlsplit

from toolweave._json_types import JsonObject, as_array, as_text, finite_number, object_or_empty, text_or_empty
from toolweave._value import Value
from toolweave.errors import shortened
from toolweave.serve.request import Identity

_MAX_SHOWN = 200
_ID_TOKEN_CLAIMS = frozenset({"at_hash", "c_hash", "s_hash", "nonce"})
_OTHER_KINDS = frozenset({"id", "refresh", "logout"})
_CLIENT_CLAIMS = ("client_id", "azp", "appid", "cid")
"""The claims that name a token's client: RFC 9068, OpenID Connect, Entra ID (v1 tokens), Okta."""


CHECKED_HERE: Any = {f"verify_{name}": False for name in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")}
"""The options of `jwt.decode` that switch off the checks of `ExpectedClaims` and `check_names`."""


class TokenProblem(Exception):
    """A private signal: a token is refused. The text is the reason and safe to log."""


class ExpectedClaims(Value, frozen=True):
    """The claims that a token must have to be accepted at one endpoint.

    Attributes:
        audiences: One of them must be in `aud`.
        client_ids: The clients whose tokens are accepted without an `aud`.
        leeway_seconds: The tolerated difference of clocks.
        must_expire: Whether a token without `exp` is refused.
    """

    audiences: tuple[str, ...]
    client_ids: tuple[str, ...] = ()
    leeway_seconds: float = 0.0
    must_expire: bool = True

    def also(self, audience: str) -> ExpectedClaims:
        """Return the same with one more audience."""
        return self.replace(audiences=(*self.audiences, audience))

    def check(self, claims: JsonObject, issuer: str, *, now: float) -> None:
        """Check verified claims of a token of an issuer.

        Raises:
            TokenProblem: A claim is missing or has another value.
        """
        if claims.get("iss") != issuer:
            raise unexpected("iss", claims.get("iss"), (issuer,))
        self._check_audience(claims)
        self._check_times(claims, now)

    def end_of(self, claims: JsonObject) -> int | None:
        """Return when checked claims are no longer accepted, in seconds since the epoch; None for never."""
        if claims.get("exp") is None:
            return None
        return math.ceil(float(claims["exp"]) + self.leeway_seconds)

    def _check_audience(self, claims: JsonObject) -> None:
        # Providers without audiences name the client instead (Cognito). A token that has an audience is judged by it:
        # the list of clients must not open the endpoint to tokens for another resource.
        if "aud" not in claims and self.client_ids:
            client = client_of(claims)
            if client not in self.client_ids:
                raise unexpected("client_id", client, self.client_ids)
            return
        audience = claims.get("aud")
        accepted: set[str] = set()
        for one in self.audiences:
            accepted.update(spellings(one))
        # RFC 7519, 4.1.3: a text, or a list of which one must fit.
        for name in as_array(audience) or [audience]:
            if isinstance(name, str) and name in accepted:
                return
        raise unexpected("aud", audience, self.audiences)

    def _check_times(self, claims: JsonObject, now: float) -> None:
        for name in ("exp", "nbf", "iat"):
            at: object = claims.get(name)
            is_required = name == "exp" and self.must_expire
            if at is None and not is_required:
                continue
            if not is_time(at):
                raise TokenProblem(f"{name!r} is {shown(at)}, expected a number of seconds")
            # The leeway lengthens the life of a token at both ends, never shortens it.
            if name == "exp":
                is_wrong = at + self.leeway_seconds <= now
            else:
                is_wrong = at - self.leeway_seconds > now
            if is_wrong:
                raise TokenProblem(f"{name!r} is {shown(at)}, and it is {int(now)} now")


def unexpected(claim: str, value: object, expected: Iterable[str]) -> TokenProblem:
    """Return the problem of a claim that has another value than the expected ones."""
    named = " or ".join(shown(one) for one in expected) or "no value"
    if value is None:
        return TokenProblem(f"{claim!r} is missing, expected {named}")
    return TokenProblem(f"{claim!r} is {shown(value)}, expected {named}")


def shown(value: object) -> str:
    """Return a foreign value for the log: one short line."""
    return shortened(repr(value), _MAX_SHOWN)


def is_time(value: object) -> TypeGuard[int | float]:
    """Whether a value is a time (RFC 7519, `NumericDate`)."""
    return finite_number(value) is not None


def spellings(url: str) -> tuple[str, ...]:
    """Return every spelling of a URL: at the root of a host it may have a slash (RFC 3986, 6.2.3)."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return (url,)
    # Only the root: elsewhere a path with and without a slash at its end are two resources.
    is_root = parts.path in ("", "/") and not parts.query
    if not is_root or not parts.netloc or parts.fragment:
        return (url,)
    plain = url.removesuffix("/")
    return (plain, f"{plain}/")


def plain_resource(url: str) -> str:
    """Return the spelling of a resource's URL for metadata: at the root of a host without a slash."""
    return spellings(url)[0]


def client_of(claims: JsonObject) -> object:
    """Return the client in claims, or None."""
    for name in _CLIENT_CLAIMS:
        if claims.get(name):
            return claims[name]
    return None


def check_names(claims: JsonObject) -> None:
    """Refuse claims whose subject or token id is not text (RFC 7519, 4.1.2 and 4.1.7).

    Raises:
        TokenProblem: One of them is something else.
    """
    for name in ("sub", "jti"):
        if not isinstance(claims.get(name), str | None):
            raise TokenProblem(f"{name!r} is {shown(claims[name])}, expected text")


def check_kind(claims: JsonObject) -> None:
    """Refuse the claims of an ID token, and of tokens that declare another kind (Keycloak, Cognito).

    Raises:
        TokenProblem: The token is not an access token.
    """
    # An ID token is for the client that asked for it and has its id as audience. A client that has such an id in
    # common with this endpoint would otherwise turn a proof of sign-in into a right to call.
    signs = sorted(_ID_TOKEN_CLAIMS.intersection(claims))
    if signs:
        raise TokenProblem(f"it is an ID token: it has {signs[0]!r}")
    for name in ("typ", "token_use"):
        kind = text_or_empty(claims.get(name))
        if kind.lower() in _OTHER_KINDS:
            raise TokenProblem(f"{name!r} is {shown(kind)}, expected an access token")


def identity_of_claims(claims: JsonObject, *, expires_at: int | None = None) -> Identity:
    """Return the identity of verified claims.

    Raises:
        TokenProblem: They have neither a client nor a subject, or bind the token to something other than a DPoP key.
    """
    subject = claims.get("sub")
    client = client_of(claims) or subject
    if not isinstance(client, str):
        names = ", ".join(repr(name) for name in (*_CLIENT_CLAIMS, "sub"))
        raise TokenProblem(f"it names no client and no subject: {names} are missing, or not text")
    return Identity(
        client_id=client,
        subject=as_text(subject),
        issuer=as_text(claims.get("iss")),
        scopes=_scopes_in(claims),
        expires_at=expires_at,
        key_thumbprint=_thumbprint(claims),
        claims=claims,
    )


def _scopes_in(claims: JsonObject) -> tuple[str, ...]:
    """Return the scopes in claims: a text with spaces, or a list (`scp` of Entra ID and Okta)."""
    scopes = claims.get("scope", claims.get("scp", ()))
    if isinstance(scopes, str):
        return tuple(scopes.split())
    if isinstance(scopes, list | tuple):
        return tuple(map(str, cast("Iterable[object]", scopes)))
    return ()


def _thumbprint(claims: JsonObject) -> str | None:
    """Return the thumbprint of the key that a token is bound to, or None if it is not bound.

    Raises:
        TokenProblem: The token is bound to something else, such as a certificate (RFC 8705), which is not checked.
    """
    if claims.get("cnf") is None:
        return None
    thumbprint = object_or_empty(claims["cnf"]).get("jkt")
    if not isinstance(thumbprint, str):
        raise TokenProblem(f"'cnf' is {shown(claims['cnf'])}, expected a 'jkt': only keys of DPoP are checked")
    return thumbprint
