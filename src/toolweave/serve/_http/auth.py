"""Authorization of HTTP requests (OAuth 2.1 resource server): bearer tokens, looked up or verified as JWTs.

The challenges (401, 403) and the metadata of RFC 9728 are the SDK's (`sdk.py`). A token never leaves this module:
handlers, results, logs and errors see the principal only, and nothing forwards it.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from toolweave.config import is_loopback
from toolweave.errors import ConfigError
from toolweave.serve._http.asgi import App, Scope
from toolweave.serve._request import Identity, principal_of

if TYPE_CHECKING:
    import jwt

__all__ = ["BearerAuth", "Identity", "JwtAuth", "TokenAuth", "Verify"]

_log = logging.getLogger("toolweave.serve._http.auth")


Verify: TypeAlias = Callable[[str], "Identity | str | Awaitable[Identity | str | None] | None"]
"""Returns the identity, or a plain client id, of a token; None for an invalid token."""


class _AccessTokenLike(Protocol):
    """The members of the SDK's `AccessToken` that are used here."""

    client_id: str
    subject: str | None
    claims: Mapping[str, Any] | None


class TokenAuth:
    """Authorizes requests whose bearer token `verify` accepts.

    Args:
        verify: Called for each request. An exception counts as an invalid token, and is logged without its text.
        required_scopes: The scopes that every token must have; 403 without.
        resource: The endpoint's own URL (`https://api.example/mcp`).
        authorization_servers: The issuers of its tokens. With both, clients discover where to sign in (RFC 9728). Of a
            mounted app, the metadata has to be reachable at the root of the host.

    Raises:
        ConfigError: Only one of `resource` and `authorization_servers` is given.
    """

    def __init__(
        self,
        verify: Verify,
        *,
        required_scopes: Iterable[str] = (),
        resource: str | None = None,
        authorization_servers: Iterable[str] = (),
    ) -> None:
        self._verify = verify
        self.required_scopes = tuple(required_scopes)
        self.resource = resource
        self.authorization_servers = tuple(authorization_servers)
        if (resource is None) != (not self.authorization_servers):
            raise ConfigError("metadata for clients needs both resource and authorization_servers, or neither")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.resource or ''}>"

    async def identify(self, token: str) -> Identity | None:
        """Return the identity of a token; None when it is invalid or has expired."""
        try:
            found = self._verify(token)
            if inspect.isawaitable(found):
                found = await found
        except Exception as exc:  # boundary: a verifier's failure lets nobody in, and its text may hold the token
            _log.error("verifying a token failed: %s", type(exc).__name__)
            return None
        if found is None or isinstance(found, str):
            return Identity(client_id=found) if found else None
        return None if found.expires_at is not None and found.expires_at <= time.time() else found

    def protect(self, app: App) -> tuple[App, dict[str, App]]:
        """Return the app wrapped in the authorization, and the public metadata by path."""
        from toolweave.serve._sdk import protected  # only a server that authorizes needs it here

        return protected(
            app,
            self.identify,
            required_scopes=self.required_scopes,
            resource=self.resource,
            authorization_servers=self.authorization_servers,
        )

    def principal(self, scope: Scope) -> str | None:
        """Return the principal of an authorized request."""
        token = cast("_AccessTokenLike | None", getattr(scope.get("user"), "access_token", None))
        if token is None:
            return None
        return principal_of(token.client_id, (token.claims or {}).get("iss"), token.subject)


class BearerAuth(TokenAuth):
    """Accepts listed tokens, or those that a function of yours accepts.

    Args:
        verify: `verify(token)` returns an `Identity`, a client id, or None; may be async.
        tokens: Instead of it, client ids by token (or only tokens, when clients need not be told apart).
        **metadata: `required_scopes`, `resource` and `authorization_servers` of the base class.

    Raises:
        ConfigError: Both or neither are given, or a token is shorter than 16 characters.
    """

    def __init__(
        self, verify: Verify | None = None, *, tokens: Mapping[str, str] | Sequence[str] | None = None, **metadata: Any
    ) -> None:
        if (verify is None) == (tokens is None):
            raise ConfigError("BearerAuth needs verify= or tokens=, one of them")
        super().__init__(verify or _ListedTokens(tokens or ()), **metadata)


class _ListedTokens:
    """Listed tokens, compared by their digests in constant time."""

    def __init__(self, tokens: Mapping[str, str] | Sequence[str]) -> None:
        named = tokens if isinstance(tokens, Mapping) else {token: f"token-{n}" for n, token in enumerate(tokens, 1)}
        if isinstance(tokens, str) or not named or any(len(token) < 16 for token in named):
            raise ConfigError("tokens must be a list or a mapping of tokens that are 16 characters or longer")
        self._known = {_digest(token): name for token, name in named.items()}

    def __call__(self, token: str) -> str | None:
        return self._known.get(_digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


_SHORTEST_SECRET = 32  # bytes (RFC 7518, 3.2)


class JwtAuth(TokenAuth):
    """Accepts JWTs of one issuer for one audience, signed with its keys.

    Args:
        issuer: Must be the `iss` of a token, exactly.
        audience: Must be (among) its `aud`: the endpoint's own URL, or the issuer's name for it. A token for
            another audience is never accepted.
        jwks_url: The URL of the issuer's key set; fetched when first needed, and for unknown keys.
        key: Instead of it, the key: PEM text of a public key, or a secret for HS256.
        algorithms: The accepted signature algorithms; never `none`.
        leeway_seconds: The tolerated difference of clocks.
        **metadata: `required_scopes`, `resource` and `authorization_servers` of the base class; when `audience` is an
            `https` URL, the last two default to it and the issuer.

    Raises:
        ConfigError: Both or neither of `jwks_url` and `key` are given, an algorithm is unknown, `jwks_url` is no
            `https` URL (`http` is accepted for this machine), or a secret is shorter than 32 bytes.
    """

    def __init__(
        self,
        *,
        issuer: str,
        audience: str,
        jwks_url: str | None = None,
        key: str | None = None,
        algorithms: Sequence[str] = ("RS256", "ES256"),
        leeway_seconds: float = 30,
        **metadata: Any,
    ) -> None:
        if (jwks_url is None) == (key is None):
            raise ConfigError("JwtAuth needs jwks_url= or key=, one of them")
        if not algorithms or any(name.lower() == "none" for name in algorithms):
            raise ConfigError("JwtAuth needs algorithms, and 'none' is not one")
        if audience.startswith("https://"):
            metadata = {"resource": audience, "authorization_servers": (issuer,), **metadata}
        by_secret = any(name.upper().startswith("HS") for name in algorithms)
        if key is not None and by_secret and len(key.encode()) < _SHORTEST_SECRET:
            raise ConfigError(f"JwtAuth needs a secret of {_SHORTEST_SECRET} bytes or more for HS256")
        keys: _Keys = _StaticKey(key) if key is not None else _PublishedKeys(cast("str", jwks_url))
        super().__init__(_JwtVerifier(issuer, audience, keys, tuple(algorithms), leeway_seconds), **metadata)


_Keys: TypeAlias = Callable[[str | None], Awaitable[Any]]
"""Returns the key of an id, or None."""


class _StaticKey:
    def __init__(self, key: str) -> None:
        self._key = key

    async def __call__(self, key_id: str | None) -> str:
        return self._key


class _PublishedKeys:
    """An issuer's published keys; fetched again at most every half minute, however many unknown keys tokens name."""

    PAUSE_SECONDS = 30
    KEPT_SECONDS = 3600

    def __init__(self, url: str) -> None:
        _check_key_url(url)
        self._url = url
        self._client: jwt.PyJWKClient | None = None
        self._keys: dict[str | None, Any] = {}
        self._asked = float("-inf")
        self._lock = anyio.Lock()

    async def __call__(self, key_id: str | None) -> Any:
        if key_id in self._keys and time.monotonic() - self._asked <= self.KEPT_SECONDS:
            return self._keys[key_id]  # whoever names a key that nobody knows lets nobody else wait
        async with self._lock:
            age = time.monotonic() - self._asked
            if age > self.KEPT_SECONDS or (key_id not in self._keys and age > self.PAUSE_SECONDS):
                self._asked = time.monotonic()
                self._keys = await anyio.to_thread.run_sync(self._fetch)
        return self._keys.get(key_id)

    def _fetch(self) -> dict[str | None, Any]:
        import jwt

        if self._client is None:
            self._client = jwt.PyJWKClient(self._url, cache_jwk_set=False, timeout=10)
        return {key.key_id: key.key for key in self._client.get_signing_keys(refresh=True)}


def _check_key_url(url: str) -> None:
    """Refuse a key URL that is not protected by TLS, except on this machine."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ConfigError("jwks_url is not a URL: its host or port cannot be read") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"jwks_url must not hold a user or password: its host is {host!r}")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise ConfigError(f"jwks_url {url!r} must be https (http only for this machine)")


class _JwtVerifier:
    """Verifies JWTs."""

    def __init__(
        self, issuer: str, audience: str, keys: _Keys, algorithms: tuple[str, ...], leeway_seconds: float
    ) -> None:
        self._issuer = issuer
        self._audience = audience
        self._keys = keys
        self._algorithms = algorithms
        self._leeway = leeway_seconds

    async def __call__(self, token: str) -> Identity | None:
        import jwt

        try:
            key = await self._keys(jwt.get_unverified_header(token).get("kid"))
            if key is None:
                return None
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(self._algorithms),
                audience=self._audience,
                issuer=self._issuer,
                leeway=self._leeway,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.InvalidTokenError as exc:
            _log.info("a token was refused: %s", type(exc).__name__)
            return None
        return _identity(claims)


def _identity(claims: Mapping[str, Any]) -> Identity | None:
    subject = claims.get("sub")
    client = claims.get("client_id") or claims.get("azp") or subject
    if not isinstance(client, str):
        return None
    scopes = claims.get("scope", claims.get("scp", ()))
    listed = scopes.split() if isinstance(scopes, str) else scopes
    return Identity(
        client_id=client,
        subject=subject if isinstance(subject, str) else None,
        issuer=str(claims["iss"]),
        scopes=tuple(str(scope) for scope in cast("Iterable[object]", listed)),
    )
