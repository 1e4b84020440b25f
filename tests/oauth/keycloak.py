"""An authorization server that behaves like Keycloak, in the test's own event loop.

What makes it different: its issuer has a path; its metadata are below that path; it lists no `none` among the methods
of authentication; it refuses to register a client for a scope that the realm does not offer, with an error of its own;
it ignores `resource`; its answers have members that no specification names.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import unquote_plus, urlencode

from tests.connect.scripted import Exchange, listening
from tests.oauth.world import ProtectedHost, form_of, refuse

__all__ = ["REALM_SCOPES", "KeycloakHost", "keycloak_world"]

REALM_SCOPES = ("openid", "profile", "email", "offline_access", "roles", "mcp:tools")
"""The scopes that its metadata list."""
_REALM = "/realms/work"
_PROTOCOL = f"{_REALM}/protocol/openid-connect"
_REGISTRATION = f"{_REALM}/clients-registrations/openid-connect"
_METHODS = ("private_key_jwt", "client_secret_basic", "client_secret_post", "tls_client_auth", "client_secret_jwt")


class KeycloakHost:
    """The authorization server of one realm.

    Attributes:
        url: Its address, without the realm.
        client_scopes: The scopes that a client may register; `openid` is not one of them.
        method: The method that it registers clients for, whatever they ask for.
        clients: The metadata of each registered client.
        tokens: The scopes of each access token that is good.
        requests: Every request to it.
    """

    def __init__(self) -> None:
        self.url = ""
        self.client_scopes = {"profile", "email", "offline_access", "roles", "mcp:tools"}
        self.method: str | None = None
        self.clients: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, str] = {}
        self.requests: list[Exchange] = []
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh: dict[str, tuple[str, str]] = {}
        self._numbers = itertools.count(1)

    @property
    def issuer(self) -> str:
        """Its issuer."""
        return f"{self.url}{_REALM}"

    def registrations(self) -> list[dict[str, Any]]:
        """Return the registrations that were asked for."""
        return [json.loads(one.body) for one in self.requests if one.path == _REGISTRATION]

    def metadata(self) -> dict[str, Any]:
        """Return its metadata."""
        endpoints = {
            "authorization_endpoint": "auth",
            "token_endpoint": "token",
            "introspection_endpoint": "token/introspect",
            "revocation_endpoint": "revoke",
            "end_session_endpoint": "logout",
            "jwks_uri": "certs",
            "device_authorization_endpoint": "auth/device",
        }
        return {
            "issuer": self.issuer,
            **{name: f"{self.url}{_PROTOCOL}/{path}" for name, path in endpoints.items()},
            "registration_endpoint": f"{self.url}{_REGISTRATION}",
            "scopes_supported": list(REALM_SCOPES),
            "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
            "response_types_supported": ["code", "none", "id_token", "token"],
            "token_endpoint_auth_methods_supported": list(_METHODS),
            "code_challenge_methods_supported": ["plain", "S256"],
            "authorization_response_iss_parameter_supported": True,
            "mtls_endpoint_aliases": {"token_endpoint": f"{self.url}{_PROTOCOL}/token"},
        }

    async def handle(self, exchange: Exchange) -> None:
        """Answer one request."""
        self.requests.append(exchange)
        if exchange.path == f"{_REALM}/.well-known/openid-configuration":
            await exchange.respond_json(200, self.metadata())
        elif exchange.path == _REGISTRATION:
            await self._register(exchange, json.loads(exchange.body))
        elif exchange.path == f"{_PROTOCOL}/auth":
            await self._authorize(exchange)
        elif exchange.path == f"{_PROTOCOL}/token":
            await self._token(exchange, form_of(exchange))
        else:
            await exchange.respond_json(404, {"error": "HTTP 404 Not Found"})

    async def _register(self, exchange: Exchange, asked: dict[str, Any]) -> None:
        scopes = set(str(asked.get("scope", "")).split())
        if not scopes <= self.client_scopes:
            policy = "Policy 'Allowed Client Scopes' rejected request to client-registration service."
            await refuse(exchange, "insufficient_scope", f"{policy} Not permitted to use specified clientScope", 403)
            return
        name = f"0a1b2c3d-{next(self._numbers)}"
        made: dict[str, Any] = {
            **asked,
            "client_id": name,
            "client_secret": f"secret of {name}",
            "client_secret_expires_at": 0,
            "client_id_issued_at": 1_790_000_000,
            "token_endpoint_auth_method": self.method or asked["token_endpoint_auth_method"],
            "scope": " ".join(sorted(scopes or self.client_scopes)),
            "subject_type": "public",
            "request_uris": [],
            "registration_client_uri": f"{self.url}{_REGISTRATION}/{name}",
            "registration_access_token": "eyJ.of.registration",
            "tls_client_certificate_bound_access_tokens": False,
        }
        self.clients[name] = made
        await exchange.respond_json(201, made)

    async def _authorize(self, exchange: Exchange) -> None:
        asked = exchange.query
        client = self.clients[asked["client_id"]]
        assert asked["redirect_uri"] in client["redirect_uris"]
        granted = {"openid", *client["scope"].split()}
        wrong = [scope for scope in asked.get("scope", "").split() if scope not in granted]
        back = {"state": asked["state"], "iss": self.issuer}
        if wrong:
            back |= {"error": "invalid_scope", "error_description": f"Invalid scopes: {asked['scope']}"}
        else:
            code = f"code-{next(self._numbers)}"
            self._codes[code] = asked
            back |= {"code": code, "session_state": "7f0d"}
        await exchange.respond(302, location=f"{asked['redirect_uri']}?{urlencode(back)}")

    async def _token(self, exchange: Exchange, form: dict[str, str]) -> None:
        client_id = self._authenticated(exchange, form)
        if client_id is None:
            text = "Invalid client or Invalid client credentials"
            await refuse(exchange, "unauthorized_client", text, 401)
            return
        if form["grant_type"] == "refresh_token":
            owner, scope = self._refresh.pop(form["refresh_token"], ("", ""))
            if owner != client_id:
                await refuse(exchange, "invalid_grant", "Invalid refresh token")
                return
        else:
            asked = self._codes.pop(form["code"])
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            assert asked["code_challenge"] == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            assert asked["redirect_uri"] == form["redirect_uri"]
            scope = asked.get("scope", "")
        number = next(self._numbers)
        access, refresh = f"access-{number}", f"refresh-{number}"
        self.tokens[access] = scope
        self._refresh[refresh] = (client_id, scope)
        tokens = {"access_token": access, "refresh_token": refresh, "token_type": "Bearer", "scope": scope}
        ends = {"expires_in": 300, "refresh_expires_in": 1800, "not-before-policy": 0, "session_state": "7f0d"}
        await exchange.respond_json(200, {**tokens, **ends})

    def _authenticated(self, exchange: Exchange, form: dict[str, str]) -> str | None:
        """Return the client of a request, authenticated by the method that it is registered for and no other."""
        scheme, _, value = exchange.headers.get("authorization", "").partition(" ")
        if scheme == "Basic":
            name, _, secret = (unquote_plus(part) for part in base64.b64decode(value).decode().partition(":"))
            method = "client_secret_basic"
        else:
            name, secret = form.get("client_id", ""), form.get("client_secret", "")
            method = "client_secret_post"
        client = self.clients.get(name, {})
        right = client.get("client_secret") == secret and client.get("token_endpoint_auth_method") == method
        return name if right else None


@asynccontextmanager
async def keycloak_world() -> AsyncGenerator[tuple[KeycloakHost, ProtectedHost], None]:
    """Serve a realm and an MCP server with the tool `t` behind it."""
    host = KeycloakHost()
    async with AsyncExitStack() as stack:
        url, _ = await stack.enter_async_context(listening(host.handle))
        host.url = url.removesuffix("/mcp")
        server = ProtectedHost(host)
        server.url, _ = await stack.enter_async_context(listening(server.handle))
        yield host, server
