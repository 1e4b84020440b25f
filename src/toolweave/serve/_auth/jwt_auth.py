"""JWTs as access tokens (RFC 9068): the signature, the issuer, the audience and the kind of each."""

# A token is verified with the keys of the issuer that it names, and no others, so an issuer cannot issue tokens of
# another one. Its header is checked first, so a token of a wrong kind causes no request to an issuer. The issuer that
# was read from the unverified token is compared once more with the verified claims.

from __future__ import annotations

import time
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack

from toolweave._json import JsonDecoder
from toolweave._json_types import JsonObject
from toolweave._option_checks import check_kinds, check_number, instance_of, type_error
from toolweave._value import Value
from toolweave.config._oauth import ALGORITHMS
from toolweave.config.validation import suggestion
from toolweave.errors import ConfigError
from toolweave.serve._auth.claims import (
    CHECKED_HERE,
    ExpectedClaims,
    TokenProblem,
    check_kind,
    check_names,
    identity_of_claims,
    shown,
    unexpected,
)
from toolweave.serve._auth.issuer_keys import GivenKey, PublishedKeys, VerificationKeys, check_public_key
from toolweave.serve._auth.token_auth import IssuerOptions, TokenAuth, own_metadata, text_list
from toolweave.serve.request import Identity

_MIN_SECRET = 32
"""Bytes of a secret (RFC 7518, 3.2)."""
_SECRET_ALGORITHMS = ("HS256", "HS384", "HS512")
_PLAIN_TYPES = frozenset({None, "jwt", "at+jwt"})
_BY_ISSUER = instance_of((str, Mapping), "a string, or a mapping of issuers to strings").or_none
_KINDS = {"jwks_url": _BY_ISSUER, "key": _BY_ISSUER}


class JwtAuth(TokenAuth):
    """Accepts JWTs of listed issuers for listed audiences, signed with the keys of their own issuer.

    Without `jwks_url` and `key`, the metadata of each issuer name its keys (RFC 8414, OpenID Connect Discovery). A
    token that is bound to a key (`cnf.jkt`) is accepted only with a proof (RFC 9449). While the issuer's keys cannot be
    fetched, requests are answered with 503, because the tokens may be valid.

    For each refused token, one line of the log `toolweave.serve._auth` names the claim, the expected value and the
    received one.

    Args:
        issuer: The exact `iss` of a token; one, or several.
        audience: The `aud` of a token, or a member of it: the endpoint's own URL, or the issuer's name for it; one, or
            several. A token for another audience is never accepted.
        jwks_url: The URL of the key set; fetched when first needed, and for unknown keys. With several issuers, the
            shared URL, or a mapping of issuers to URLs.
        key: Instead of it, the key: PEM text of a public key, or a secret for HS256; or a mapping of issuers to keys.
        algorithms: The accepted signature algorithms; never `none`. No key is read from a token.
        token_type: `"at+jwt"` accepts only tokens that are declared as access tokens (RFC 9068). `"any"` also accepts
            tokens without a type, but no token that looks like an ID token.
        leeway_seconds: The tolerated difference of clocks.
        **options: See `IssuerOptions`; when an `audience` is a URL, `resource` and `authorization_servers` default
            to it and the issuers.

    Raises:
        ConfigError: Both `jwks_url` and `key` are given, or one of them for an unknown issuer; the issuer is missing,
            or both the audience and the client; an algorithm is unknown; secrets and public keys are mixed; a URL is
            not an `https` URL (`http` is accepted for this machine); a secret is shorter than 32 bytes, or an RSA key
            than 2,048 bits; or the leeway is negative or not finite.
        TypeError: A value has another type.
    """

    def __init__(
        self,
        *,
        issuer: str | Sequence[str],
        audience: str | Sequence[str],
        jwks_url: str | Mapping[str, str] | None = None,
        key: str | Mapping[str, str] | None = None,
        algorithms: Sequence[str] = ("RS256", "ES256"),
        token_type: Literal["any", "at+jwt"] = "any",  # noqa: S107  # a type of tokens
        leeway_seconds: float = 30,
        **options: Unpack[IssuerOptions],
    ) -> None:
        check_kinds({"jwks_url": jwks_url, "key": key}, _KINDS, owner="JwtAuth")
        check_number("JwtAuth.leeway_seconds", leeway_seconds)
        if jwks_url is not None and key is not None:
            raise ConfigError("JwtAuth needs jwks_url= or key=, or neither if the issuer publishes metadata")
        if token_type not in ("any", "at+jwt"):
            raise ConfigError(f"token_type is 'any' or 'at+jwt', not {token_type!r}")
        issuers = text_list(issuer, "issuer")
        clients = text_list(options.pop("client_ids", ()), "client_ids", empty=True)
        audiences = text_list(audience, "audience", empty=bool(clients))
        if not issuers:
            raise ConfigError("JwtAuth needs an issuer")
        urls = _by_issuer(jwks_url, issuers, "jwks_url")
        given = _by_issuer(key, issuers, "key")
        _check_algorithms(algorithms, given)
        keys: dict[str, VerificationKeys] = {}
        for one in issuers:
            if one in given:
                keys[one] = GivenKey(given[one])
            else:
                keys[one] = PublishedKeys(one, urls.get(one), algorithms)
        if token_type == "at+jwt":  # noqa: S105  # a type of tokens
            kinds = frozenset({"at+jwt"})
        else:
            kinds = _PLAIN_TYPES
        expected = ExpectedClaims(audiences=audiences, client_ids=clients, leeway_seconds=leeway_seconds)
        verifier = _JwtVerifier(keys, tuple(algorithms), expected, kinds)
        super().__init__(verifier, **own_metadata(audiences, issuers, options))


def _by_issuer(given: str | Mapping[str, str] | None, issuers: Sequence[str], name: str) -> dict[str, str]:
    """Return the value of each issuer; one value is for all."""
    if given is None:
        return {}
    if isinstance(given, str):
        return dict.fromkeys(issuers, given)
    for one in given:
        if one not in issuers:
            raise ConfigError(f"{name} is given for {one!r}, which is not an issuer; {suggestion(one, issuers)}")
        if not isinstance(given[one], str):  # pyright: ignore[reportUnnecessaryIsInstance]  # given in Python
            raise type_error(f"{name} of {one!r}", given[one], "a string")
    return dict(given)


def _check_algorithms(algorithms: Sequence[str], keys: Mapping[str, str]) -> None:
    known = (*ALGORITHMS, *_SECRET_ALGORITHMS)
    if isinstance(algorithms, str) or not algorithms:
        raise ConfigError("JwtAuth: algorithms is a list of names, such as ['RS256']")
    for name in algorithms:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # given in Python
            raise type_error("each of JwtAuth.algorithms", name, "a string")
        if name.lower() == "none":
            raise ConfigError("JwtAuth needs algorithms, and 'none' is not one")
        if name not in known:
            raise ConfigError(f"JwtAuth: {name!r} is not a known algorithm; {suggestion(name, known)}")
    secret = [name for name in algorithms if name in _SECRET_ALGORITHMS]
    is_mixed = len(secret) < len(algorithms)
    # With both kinds, a public key could be used as the secret of an HMAC: everybody knows it (RFC 8725, 2.1).
    if secret and (is_mixed or not keys):
        raise ConfigError("JwtAuth: HS algorithms need key=, a secret, and stand alone: a public key is not a secret")
    for key in keys.values():
        if not secret:
            check_public_key(key)
        elif len(key.encode()) < _MIN_SECRET:
            raise ConfigError(f"JwtAuth needs a secret of {_MIN_SECRET} bytes or more for HS256")


class _NamedIssuer(Value, frozen=True):
    """The claim that is read before a token is verified, to choose the keys that verify it."""

    iss: Any = None


_decode_issuer = JsonDecoder(_NamedIssuer)


class _JwtVerifier:
    """Verifies JWTs."""

    def __init__(
        self,
        keys: Mapping[str, VerificationKeys],
        algorithms: tuple[str, ...],
        expected: ExpectedClaims,
        kinds: frozenset[str | None],
    ) -> None:
        self._keys = keys
        self._algorithms = algorithms
        self._expected = expected
        self._kinds = kinds

    def also(self, audience: str) -> _JwtVerifier:
        """Return a verifier that accepts tokens for one more audience."""
        return _JwtVerifier(self._keys, self._algorithms, self._expected.also(audience), self._kinds)

    async def __call__(self, token: str) -> Identity:
        import jwt

        try:
            header = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError as exc:
            # the text of the exception contains no part of the token
            raise TokenProblem(f"it is not a JWT that can be read here: {shown(str(exc))}") from None
        self._check_header(header)
        issuer = _issuer_in(token)
        if not isinstance(issuer, str) or issuer not in self._keys:
            raise unexpected("iss", issuer, self._keys)
        key_id = header.get("kid")
        key = await self._keys[issuer].find(key_id)
        if key is None:
            raise TokenProblem(f"its key {shown(key_id)} ('kid') is not one of issuer {issuer!r}")
        try:
            claims = key.claims_of(token, self._algorithms, options=CHECKED_HERE)
        except jwt.InvalidSignatureError:
            raise TokenProblem(f"its signature is not by the key {shown(key_id)} of issuer {issuer!r}") from None
        except jwt.InvalidAlgorithmError:
            algorithm = shown(header.get("alg"))
            raise TokenProblem(f"'alg' is {algorithm}, and its key {shown(key_id)} is not for that algorithm") from None
        except jwt.PyJWTError as exc:
            raise TokenProblem(f"it cannot be verified: {type(exc).__name__}") from None
        self._expected.check(claims, issuer, now=time.time())
        check_names(claims)
        if _kind(header) != "at+jwt":
            check_kind(claims)
        return identity_of_claims(claims, expires_at=self._expected.end_of(claims))

    def _check_header(self, header: JsonObject) -> None:
        """Check the header of a token, before the keys of its issuer are fetched."""
        if _kind(header) not in self._kinds:
            raise TokenProblem(f"'typ' is {shown(header.get('typ'))}, which is not the type of an access token here")
        # An extension that is marked as critical must be understood, or the token refused (RFC 7515, 4.1.11).
        if "crit" in header:
            raise TokenProblem(f"'crit' is {shown(header['crit'])}, and no extension is known here")
        if not isinstance(header.get("kid"), str | None):
            raise TokenProblem(f"'kid' is {shown(header['kid'])}, expected text")
        algorithm = header.get("alg")
        if algorithm not in self._algorithms:
            named = ", ".join(self._algorithms)
            raise TokenProblem(f"'alg' is {shown(algorithm)}, expected one of algorithms=: {named}")


def _issuer_in(token: str) -> object:
    """Return the issuer in an unverified token."""
    payload = token.split(".")[1]
    padding = "=" * (-len(payload) % 4)
    try:
        return _decode_issuer(urlsafe_b64decode(payload + padding)).iss
    except (ValueError, RecursionError):
        raise TokenProblem("its claims are not a JSON object") from None


def _kind(header: JsonObject) -> str | None:
    kind = header.get("typ")
    if kind is None:
        return None
    return str(kind).lower().removeprefix("application/")
