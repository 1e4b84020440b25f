"""Claims of access tokens, judged: issuer, audience or client, times, kind. Pure.

A reason why a token is refused is for the operator's log: it names the claim, the expected value and the received one,
each shortened. No reason holds a token.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard, cast
from urllib.parse import urlsplit

from toolweave._value import Value
from toolweave.errors import shortened
from toolweave.protocol.json_types import as_object
from toolweave.serve._request import Identity

_MAX_SHOWN = 200
_ID_TOKEN_CLAIMS = frozenset({"at_hash", "c_hash", "s_hash", "nonce"})
_OTHER_KINDS = frozenset({"id", "refresh", "logout"})
_CLIENT_CLAIMS = ("client_id", "azp", "appid", "cid")
"""The claims that name a token's client: RFC 9068, OpenID Connect, Entra ID (v1 tokens), Okta."""


CHECKED_HERE: Any = {f"verify_{name}": False for name in ("exp", "nbf", "iat", "aud", "iss")}
"""The options of `jwt.decode` that leave the checks of `ExpectedClaims` to it."""


class TokenProblem(Exception):
    """A private signal: a token is refused; the text is the reason, safe to log."""


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

    def check(self, claims: Mapping[str, Any], issuer: str, *, now: float) -> None:
        """Check verified claims of a token of an issuer.

        Raises:
            TokenProblem: A claim is missing or has another value.
        """
        if claims.get("iss") != issuer:
            raise unexpected("iss", claims.get("iss"), (issuer,))
        self._check_audience(claims)
        self._check_times(claims, now)

    def _check_audience(self, claims: Mapping[str, Any]) -> None:
        if "aud" not in claims and self.client_ids:
            client = client_of(claims)
            if client not in self.client_ids:
                raise unexpected("client_id", client, self.client_ids)
            return
        audience: object = claims.get("aud")
        if isinstance(audience, list):
            named = cast("list[object]", audience)
        else:
            named = [audience]
        accepted = {spelling for one in self.audiences for spelling in spellings(one)}
        if not any(isinstance(one, str) and one in accepted for one in named):
            raise unexpected("aud", claims.get("aud"), self.audiences)

    def _check_times(self, claims: Mapping[str, Any], now: float) -> None:
        for name in ("exp", "nbf", "iat"):
            at: object = claims.get(name)
            if at is None and not (name == "exp" and self.must_expire):
                continue
            if not is_time(at):
                raise TokenProblem(f"{name!r} is {shown(at)}, expected a number of seconds")
            early = at - self.leeway_seconds > now
            late = at + self.leeway_seconds <= now
            if late if name == "exp" else early:
                raise TokenProblem(f"{name!r} is {shown(at)}, and it is {int(now)} now")


def unexpected(claim: str, value: object, expected: Iterable[str]) -> TokenProblem:
    """Return the problem of a claim that has another value than the expected ones."""
    named = " or ".join(shown(one) for one in expected) or "no value"
    if value is None:
        return TokenProblem(f"{claim!r} is missing, expected {named}")
    return TokenProblem(f"{claim!r} is {shown(value)}, expected {named}")


def shown(value: object) -> str:
    """Return a foreign value as it is logged: on one short line."""
    return shortened(repr(value), _MAX_SHOWN)


def is_time(value: object) -> TypeGuard[int | float]:
    """Whether a value is a time (RFC 7519, `NumericDate`)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def spellings(url: str) -> tuple[str, ...]:
    """Return every spelling of a URL: at the root of a host it may have a slash (RFC 3986, 6.2.3)."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return (url,)
    if not parts.netloc or parts.path not in ("", "/") or parts.query or parts.fragment:
        return (url,)
    plain = url.removesuffix("/")
    return (plain, f"{plain}/")


def plain_resource(url: str) -> str:
    """Return the spelling of a resource's URL that is advertised: at the root of a host without a slash."""
    return spellings(url)[0]


def client_of(claims: Mapping[str, Any]) -> object:
    """Return the client that claims name, or None."""
    return next((claims[name] for name in _CLIENT_CLAIMS if claims.get(name)), None)


def check_kind(claims: Mapping[str, Any]) -> None:
    """Refuse the claims of an ID token, and of tokens that say that they are not for access (Keycloak, Cognito).

    Raises:
        TokenProblem: The token is not an access token.
    """
    signs = sorted(_ID_TOKEN_CLAIMS.intersection(claims))
    if signs:
        raise TokenProblem(f"it is an ID token: it has {signs[0]!r}")
    for name in ("typ", "token_use"):
        kind = claims.get(name)
        if isinstance(kind, str) and kind.lower() in _OTHER_KINDS:
            raise TokenProblem(f"{name!r} is {shown(kind)}, expected an access token")


def identity_of_claims(claims: Mapping[str, Any], *, expires_at: int | None = None) -> Identity:
    """Return the identity of verified claims.

    Raises:
        TokenProblem: They name neither a client nor a subject, or bind the token to something that is not checked here.
    """
    subject = claims.get("sub")
    client = client_of(claims) or subject
    if not isinstance(client, str):
        names = ", ".join(repr(name) for name in (*_CLIENT_CLAIMS, "sub"))
        raise TokenProblem(f"it names no client and no subject: {names} are missing, or not text")
    scopes = claims.get("scope", claims.get("scp", ()))
    listed = scopes.split() if isinstance(scopes, str) else scopes
    issuer = claims.get("iss")
    return Identity(
        client_id=client,
        subject=subject if isinstance(subject, str) else None,
        issuer=issuer if isinstance(issuer, str) else None,
        scopes=tuple(str(scope) for scope in cast("Iterable[object]", listed))
        if isinstance(listed, list | tuple)
        else (),
        expires_at=expires_at,
        key_thumbprint=_thumbprint(claims),
        claims=claims,
    )


def _thumbprint(claims: Mapping[str, Any]) -> str | None:
    """Return the thumbprint of the key that a token is bound to, or None if it is not bound.

    Raises:
        TokenProblem: The token is bound to something whose possession is not checked here (a certificate, RFC 8705).
    """
    confirmation = as_object(claims.get("cnf"))
    if claims.get("cnf") is None:
        return None
    if confirmation is None:
        thumbprint = None
    else:
        thumbprint = confirmation.get("jkt")
    if not isinstance(thumbprint, str):
        raise TokenProblem(f"'cnf' is {shown(claims['cnf'])}, expected a 'jkt': only keys of DPoP are checked")
    return thumbprint
