"""The public object: `OAuthServer`, the authorization of an endpoint by an authorization server at its own origin."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias, Unpack
from urllib.parse import urlsplit

from toolweave._json_types import Json, JsonObject
from toolweave._option_checks import FUNCTION, TEXT, check_kinds, instance_of
from toolweave.errors import ConfigError
from toolweave.serve._auth.claims import TokenProblem, identity_of_claims, plain_resource
from toolweave.serve._auth.resource_metadata import JsonDocument
from toolweave.serve._auth.token_auth import ProtectionOptions, TokenAuth
from toolweave.serve._http.asgi import App, Receive, Scope, Send, respond
from toolweave.serve._oauth_server.authorize import AuthorizationPages
from toolweave.serve._oauth_server.browser import BrowserCookies
from toolweave.serve._oauth_server.clients import ClientRules, Clients
from toolweave.serve._oauth_server.exchange import OAuthExchange
from toolweave.serve._oauth_server.grants import GrantStore
from toolweave.serve._oauth_server.keys import ServerKeys
from toolweave.serve._oauth_server.tokens import TokenPages
from toolweave.serve._oauth_server.upstream import Upstream
from toolweave.serve._oauth_server.upstream_client import UpstreamClient
from toolweave.serve.request import Identity
from toolweave.state import Store
from toolweave.state.checks import STORE
from toolweave.state.startup import opened_when_reached

_log = logging.getLogger("toolweave.serve._oauth_server")

_PATHS = {
    "authorize": "/authorize",
    "consent": "/consent",
    "callback": "/oauth/callback",
    "token": "/token",
    "revoke": "/revoke",
    "register": "/register",
}
_WELL_KNOWN = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
_ACCESS_SECONDS = 600
_GRANT_SECONDS = 30 * 86_400.0
Admits: TypeAlias = Callable[[JsonObject], bool | Awaitable[bool]]
"""Returns whether a person is admitted, by the claims of the provider."""
_KINDS = {
    "url": TEXT,
    "upstream": instance_of(Upstream, "Upstream.oidc(...), or another provider"),
    "store": STORE,
    "clients": instance_of(ClientRules, "ClientRules(...)").or_none,
    "allow": FUNCTION.or_none,
}
_Handler = Callable[[OAuthExchange], Awaitable[None]]


class OAuthServer(TokenAuth):
    """An authorization server in front of an identity provider, for one endpoint and on its origin.

    For companies whose provider registers no MCP clients itself. MCP clients register with this server (`ClientRules`),
    people consent to each client and sign in at the provider, and clients get tokens of this server, which are valid
    only for its endpoint. The provider's tokens stay in the store, encrypted.

    Register `ORIGIN/oauth/callback` at the provider as the redirect URI. Clients read its metadata at the root of the
    host: if the app is mounted below another one, call `HttpApp.serve_at_root`.

    Args:
        url: The endpoint's own URL, such as `https://notes.example/mcp`.
        upstream: The provider.
        store: Stores clients, grants and refresh tokens; replicas share one. In memory, all users sign in again after
            a restart.
        secret: A random secret of 32 bytes or more, from which all keys are derived; or several, the newest first.
        clients: Which MCP clients are accepted.
        allow: Returns whether a person who signed in at the provider is admitted, by the provider's claims; may be
            async.
        **options: See `ProtectionOptions`, without `resource` and `authorization_servers`, which are `url` and its
            origin. Clients may ask for the scopes of `scopes_supported`.

    Attributes:
        issuer: Its own identifier: the origin of `url`.
        resource_url: The endpoint's own URL.
        resources: The URLs for which tokens are given.
        all_scopes: The scopes that clients may ask for.
        grants: The grants of people to clients, and their refresh tokens.
        provider: The client of the identity provider.

    Raises:
        ConfigError: A URL is not an `https` URL (`http` is accepted for this machine), a secret is too short, or an
            option is given that follows from `url`.
        TypeError: An option is unknown, or has another type.
    """

    def __init__(
        self,
        *,
        url: str,
        upstream: Upstream,
        store: Store,
        secret: str | bytes | Sequence[str | bytes],
        clients: ClientRules | None = None,
        allow: Admits | None = None,
        **options: Unpack[ProtectionOptions],
    ) -> None:
        for name in ("resource", "authorization_servers"):
            if name in options:
                raise ConfigError(f"OAuthServer takes {name!r} from its 'url'; leave it out", field=name)
        given = {"url": url, "upstream": upstream, "store": store, "clients": clients, "allow": allow}
        check_kinds(given, _KINDS, owner="OAuthServer")
        parts = urlsplit(url)
        self.issuer: str = f"{parts.scheme}://{parts.netloc}"
        self.resource_url: str = plain_resource(url)
        self._is_reachable = False
        self.allow = allow
        named: ProtectionOptions = {**options, "resource": url, "authorization_servers": (self.issuer,)}
        self.resources: set[str] = {self.resource_url}
        super().__init__(_OwnTokens(self, (url,)), **named)
        if parts.path in {*_PATHS.values(), *_WELL_KNOWN}:
            raise ConfigError(f"the endpoint's path {parts.path!r} is one of the authorization server's own")
        self._store = store
        self.all_scopes: tuple[str, ...] = self.supported
        self._keys = ServerKeys([secret] if isinstance(secret, str | bytes) else secret)
        self.clients: Clients = Clients(clients or ClientRules(), store, self.issuer)
        self.grants: GrantStore = GrantStore(store, self._keys, _GRANT_SECONDS)
        self.provider: UpstreamClient = UpstreamClient(upstream, self.issuer + _PATHS["callback"])

    async def verified(self, token: str, audiences: Sequence[str]) -> Identity:
        """Return the identity of a token of ours, for one of these audiences, whose grant is still valid.

        Raises:
            TokenProblem: The token is not valid here.
        """
        claims = self._keys.claims(token, issuer=self.issuer, audience=audiences)
        # Asked for each request: a token is valid for minutes, and a revoked grant must end at once.
        if await self.grants.find(str(claims["grant"])) is None:
            raise TokenProblem("its grant was revoked or has ended")
        return identity_of_claims(claims, expires_at=int(claims["exp"]))

    def metadata(self) -> Json:
        """Return the metadata of the authorization server (RFC 8414)."""
        rules = self.clients.rules
        methods = ["none", "client_secret_basic", "client_secret_post"]
        document: Json = {
            "issuer": self.issuer,
            "authorization_endpoint": self.issuer + _PATHS["authorize"],
            "token_endpoint": self.issuer + _PATHS["token"],
            "revocation_endpoint": self.issuer + _PATHS["revoke"],
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": methods,
            "revocation_endpoint_auth_methods_supported": methods,
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": rules.documents,
        }
        if self.challenges.dpop_algorithms:
            document["dpop_signing_alg_values_supported"] = list(self.challenges.dpop_algorithms)
        if self.all_scopes:
            document["scopes_supported"] = list(self.all_scopes)
        if rules.registration:
            document["registration_endpoint"] = self.issuer + _PATHS["register"]
        return document

    def public_paths(self) -> tuple[str, ...]:
        """Return the paths that clients and people look for at the root of the host."""
        return (*super().public_paths(), *_WELL_KNOWN, *_PATHS.values())

    def reachable_at_root(self) -> None:
        """Note that the root of the host leads to these paths, although the app is mounted below it."""
        self._is_reachable = True

    def warn_if_unreachable(self, root_path: str) -> None:
        """Warn once if clients cannot reach its pages because the app is mounted at a path."""
        if root_path.strip("/") and not self._is_reachable:
            # one warning is enough
            self._is_reachable = True
            _log.warning(
                "the app is mounted at %r, but clients look for its authorization server at %s: call "
                "app.serve_at_root(outer), or route app.public_paths to the app",
                root_path,
                self.issuer,
            )

    def protect(self, app: App) -> tuple[App, dict[str, App]]:
        """Return the app wrapped in the authorization, and the public endpoints by path."""
        protected, public = super().protect(app)
        pages = AuthorizationPages(self, BrowserCookies(self._keys, self.issuer), _PATHS)
        tokens = TokenPages(self, self._keys, _ACCESS_SECONDS)
        handlers: dict[str, tuple[_Handler, tuple[str, ...]]] = {
            "authorize": (pages.authorize, ("GET", "POST")),
            "consent": (pages.consent, ("POST",)),
            "callback": (pages.callback, ("GET",)),
            "token": (tokens.token, ("POST", "OPTIONS")),
            "revoke": (tokens.revoke, ("POST", "OPTIONS")),
        }
        if self.clients.rules.registration:
            handlers["register"] = (tokens.register, ("POST", "OPTIONS"))
        public |= {_PATHS[name]: _endpoint(handler, methods) for name, (handler, methods) in handlers.items()}
        document = JsonDocument(self.metadata())
        return protected, public | dict.fromkeys(_WELL_KNOWN, document)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Hold the resources of the authorization open while it is served."""
        async with super().running(), opened_when_reached(self._store):
            yield


class _OwnTokens:
    """Verifies the tokens of one server."""

    def __init__(self, server: OAuthServer, audiences: Sequence[str]) -> None:
        self._server = server
        self._audiences = tuple(audiences)

    def also(self, audience: str) -> _OwnTokens:
        """Return a verifier that accepts tokens for one more audience, for which they are issued from now on."""
        self._server.resources.add(plain_resource(audience))
        return _OwnTokens(self._server, (*self._audiences, audience))

    async def __call__(self, token: str) -> Identity:
        return await self._server.verified(token, self._audiences)


def _endpoint(handler: _Handler, methods: Sequence[str]) -> App:
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in methods:
            await respond(send, 405, "Method Not Allowed", [(b"allow", ", ".join(methods).encode())])
            return
        await handler(OAuthExchange(scope, receive, send))

    return serve
