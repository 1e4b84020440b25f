"""JWTs as access tokens (RFC 9068): the signature, the issuer, the audience and the kind of each."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Unpack, cast

from toolweave.errors import ConfigError
from toolweave.serve._auth.issuer_keys import GivenKey, PublishedKeys, VerificationKeys
from toolweave.serve._auth.token_auth import ProtectionOptions, TokenAuth, own_metadata
from toolweave.serve._request import Identity

_log = logging.getLogger("toolweave.serve._auth")

_SHORTEST_SECRET = 32  # bytes (RFC 7518, 3.2)
_PLAIN_TYPES = frozenset({None, "jwt", "at+jwt"})
_ID_TOKEN_CLAIMS = frozenset({"at_hash", "c_hash", "s_hash", "nonce"})
_OTHER_KINDS = frozenset({"id", "refresh", "logout"})


class JwtAuth(TokenAuth):
    """Accepts JWTs of one issuer for one audience, signed with its keys.

    Without `jwks_url` and `key` the keys are those that the issuer's metadata names (RFC 8414, OpenID Connect
    Discovery). A token that is bound to a key (`cnf.jkt`) is accepted with a proof of it only (RFC 9449). While the
    issuer's keys cannot be known, requests are answered with 503: the tokens may be good.

    Args:
        issuer: Must be the `iss` of a token, exactly.
        audience: Must be (among) its `aud`: the endpoint's own URL, or the issuer's name for it. A token for
            another audience is never accepted.
        jwks_url: The URL of the issuer's key set; fetched when first needed, and for unknown keys.
        key: Instead of it, the key: PEM text of a public key, or a secret for HS256.
        algorithms: The accepted signature algorithms; never `none`. No key is taken from a token.
        token_type: `"at+jwt"` accepts only tokens that say that they are access tokens (RFC 9068), for issuers that
            do. `"any"` also accepts those that say nothing, but no token that looks like an ID token.
        leeway_seconds: The tolerated difference of clocks.
        **options: See `ProtectionOptions`; when `audience` is a URL, `resource` and `authorization_servers` default to
            it and the issuer.

    Raises:
        ConfigError: Both `jwks_url` and `key` are given, an algorithm is unknown, secrets and public keys are mixed, a
            URL is no `https` URL (`http` is accepted for this machine), or a secret is shorter than 32 bytes.
    """

    def __init__(
        self,
        *,
        issuer: str,
        audience: str,
        jwks_url: str | None = None,
        key: str | None = None,
        algorithms: Sequence[str] = ("RS256", "ES256"),
        token_type: Literal["any", "at+jwt"] = "any",  # noqa: S107  # a type of tokens
        leeway_seconds: float = 30,
        **options: Unpack[ProtectionOptions],
    ) -> None:
        if jwks_url is not None and key is not None:
            raise ConfigError("JwtAuth needs jwks_url= or key=, or neither where the issuer publishes metadata")
        if token_type not in ("any", "at+jwt"):
            raise ConfigError(f"token_type is 'any' or 'at+jwt', not {token_type!r}")
        _check_algorithms(algorithms, key)
        keys = GivenKey(key) if key is not None else PublishedKeys(issuer, jwks_url, algorithms)
        kinds = frozenset({"at+jwt"}) if token_type == "at+jwt" else _PLAIN_TYPES  # noqa: S105  # a type of tokens
        verifier = _JwtVerifier(issuer, audience, keys, tuple(algorithms), leeway_seconds, kinds)
        super().__init__(verifier, **own_metadata(audience, issuer, options))


def _check_algorithms(algorithms: Sequence[str], key: str | None) -> None:
    if not algorithms or any(name.lower() == "none" for name in algorithms):
        raise ConfigError("JwtAuth needs algorithms, and 'none' is not one")
    secret = [name.upper().startswith("HS") for name in algorithms]
    if any(secret) and (key is None or not all(secret)):
        raise ConfigError("JwtAuth: HS algorithms need key=, a secret, and stand alone: a public key is no secret")
    if key is not None and any(secret) and len(key.encode()) < _SHORTEST_SECRET:
        raise ConfigError(f"JwtAuth needs a secret of {_SHORTEST_SECRET} bytes or more for HS256")


class _JwtVerifier:
    """Verifies JWTs."""

    def __init__(
        self,
        issuer: str,
        audience: str | Sequence[str],
        keys: VerificationKeys,
        algorithms: tuple[str, ...],
        leeway_seconds: float,
        kinds: frozenset[str | None],
    ) -> None:
        self._issuer = issuer
        self._audiences = (audience,) if isinstance(audience, str) else tuple(audience)
        self._keys = keys
        self._algorithms = algorithms
        self._leeway = leeway_seconds
        self._kinds = kinds

    def also(self, audience: str) -> _JwtVerifier:
        """Return a verifier that accepts tokens for one more audience."""
        audiences = (*self._audiences, audience)
        return _JwtVerifier(self._issuer, audiences, self._keys, self._algorithms, self._leeway, self._kinds)

    async def __call__(self, token: str) -> Identity | None:
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            if _kind(header) not in self._kinds or "crit" in header:
                _log.info("a token was refused: its type is %.40r", header.get("typ"))
                return None
            if header.get("alg") not in self._algorithms:  # before its keys are looked for
                return None
            key = await self._keys.find(header.get("kid"))
            if key is None:
                return None
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(self._algorithms),
                audience=self._audiences,
                issuer=self._issuer,
                leeway=self._leeway,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.InvalidTokenError as exc:
            _log.info("a token was refused: %s", type(exc).__name__)
            return None
        if _kind(header) != "at+jwt" and is_other_kind(claims):
            _log.info("a token was refused: it is an ID token, or another that is no access token")
            return None
        return identity_of_claims(claims)


def _kind(header: Mapping[str, Any]) -> str | None:
    kind = header.get("typ")
    return None if kind is None else str(kind).lower().removeprefix("application/")


def is_other_kind(claims: Mapping[str, Any]) -> bool:
    """Whether claims are those of an ID token, or say that the token is none for access (Keycloak, Cognito)."""
    if not _ID_TOKEN_CLAIMS.isdisjoint(claims):
        return True
    said = (claims.get("typ"), claims.get("token_use"))
    return any(isinstance(kind, str) and kind.lower() in _OTHER_KINDS for kind in said)


def identity_of_claims(claims: Mapping[str, Any], *, expires_at: int | None = None) -> Identity | None:
    """Return the identity of verified claims; None without a client or subject, or with an uncheckable binding."""
    subject = claims.get("sub")
    client = claims.get("client_id") or claims.get("azp") or subject
    if not isinstance(client, str):
        return None
    confirmation: Any = claims.get("cnf")
    thumbprint: Any = None
    if confirmation is not None:
        # bound to what is not checked here (a certificate, RFC 8705): possession could not be proven
        thumbprint = cast("dict[str, Any]", confirmation).get("jkt") if isinstance(confirmation, dict) else None
        if not isinstance(thumbprint, str):
            return None
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
        key_thumbprint=thumbprint,
        claims=claims,
    )
