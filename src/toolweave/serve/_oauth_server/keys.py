"""Keys that are all derived from one secret: of tokens, cookies, forms and of the encrypted values in the store.

The newest secret signs, every one of them verifies, so that secrets can be changed without signing all users out.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from toolweave._json_types import Json, JsonObject
from toolweave.errors import ConfigError
from toolweave.oauth._encoding import base64url
from toolweave.serve._auth.claims import CHECKED_HERE, ExpectedClaims, TokenProblem

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

_MIN_BYTES = 32


def new_secret() -> str:
    """Return a random value of 256 bits."""
    return secrets.token_urlsafe(32)


def digest(value: str) -> str:
    """Return the digest that is stored instead of a random value, so that the store contains no credential."""
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()


class ServerKeys:
    """The keys of one authorization server.

    Args:
        values: Secrets of 32 bytes or more, the newest first.

    Raises:
        ConfigError: No secret is given, or one is shorter.
    """

    def __init__(self, values: Sequence[str | bytes]) -> None:
        given: list[bytes] = []
        for value in values:
            if isinstance(value, str):
                value = value.encode()
            given.append(value)
        if not given or any(len(value) < _MIN_BYTES for value in given):
            raise ConfigError(f"OAuthServer needs a secret of {_MIN_BYTES} random bytes or more; keep it over restarts")
        self._secrets = given

    def _derived(self, purpose: str) -> list[bytes]:
        # A key for each purpose: a sealed form can never pass as a cookie, nor a cookie as a token.
        text = f"toolweave authorization server: {purpose}".encode()
        return [hmac.digest(secret, text, "sha256") for secret in self._secrets]

    def sign(self, purpose: str, *parts: str) -> str:
        """Return a signature of texts for one purpose."""
        return _signature(self._derived(purpose)[0], parts)

    def is_signed(self, signature: str, purpose: str, *parts: str) -> bool:
        """Whether it is a signature of these texts for this purpose."""
        given = signature.encode("utf-8", "surrogatepass")
        # In constant time for each key: the signature must not be found out byte by byte.
        return any(hmac.compare_digest(_signature(key, parts).encode(), given) for key in self._derived(purpose))

    def token(self, claims: JsonObject) -> str:
        """Return an access token (RFC 9068)."""
        import jwt

        return jwt.encode(dict(claims), self._derived("access tokens")[0], "HS256", headers={"typ": "at+jwt"})

    def claims(self, token: str, *, issuer: str, audience: Iterable[str]) -> Json:
        """Return the claims of an access token of ours.

        Raises:
            TokenProblem: The token is not one of ours, is for another endpoint, or has expired.
        """
        claims = self._signed(token)
        ExpectedClaims(audiences=tuple(audience)).check(claims, issuer, now=time.time())
        return claims

    def _signed(self, token: str) -> Json:
        import jwt

        for key in self._derived("access tokens"):
            try:
                # A token of another type with the same signature, such as an ID token, must not be accepted as an
                # access token (RFC 9068, 4).
                if jwt.get_unverified_header(token).get("typ") != "at+jwt":
                    break
                options: Any = {"require": ["sub", "client_id", "grant"], **CHECKED_HERE}
                return jwt.decode(token, key, algorithms=["HS256"], options=options)
            except jwt.InvalidSignatureError:
                continue
            except jwt.InvalidTokenError:
                break
        raise TokenProblem("it is not an access token that this server has signed")

    def seal(self, purpose: str, value: Any) -> str:
        """Return a JSON value, encrypted for one purpose."""
        return self._fernet(purpose).encrypt(json.dumps(value).encode()).decode()

    def unseal(self, purpose: str, sealed: str, *, seconds: int | None = None) -> Any:
        """Decrypt a value of a purpose; None for anything else or a value older than `seconds`."""
        from cryptography.fernet import InvalidToken

        try:
            return json.loads(self._fernet(purpose).decrypt(sealed.encode("utf-8", "surrogatepass"), ttl=seconds))
        except InvalidToken:
            return None

    def _fernet(self, purpose: str) -> MultiFernet:
        from cryptography.fernet import Fernet, MultiFernet

        return MultiFernet([Fernet(urlsafe_b64encode(key)) for key in self._derived(purpose)])


def _signature(key: bytes, parts: Sequence[str]) -> str:
    # as JSON, because two different lists of texts never have the same form
    text = json.dumps(parts).encode()
    return base64url(hmac.digest(key, text, "sha256"))
