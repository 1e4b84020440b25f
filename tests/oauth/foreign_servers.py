"""MCP servers of others that are authorization servers themselves, each run as a script.

`python foreign_servers.py sdk|sdk-1|fastmcp|fastmcp-proxy [ISSUER] --port PORT`; ISSUER is the provider that the proxy
sends people to. Each registers clients for the scopes that they name, and serves the tool `add`.
`sdk` is the official SDK with an authorization server in memory, which asks nobody for consent.
"""

from __future__ import annotations

import json
import secrets
import sys
import time
import urllib.request
from importlib import import_module
from typing import Any

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

SCOPE = "read"
SECONDS = 3600


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """An authorization server for the SDK's routes, which keeps everything in memory."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[str(client_info.client_id)] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = AuthorizationCode(
            code=secrets.token_urlsafe(32),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=str(client.client_id),
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self.issued(client, authorization_code.scopes)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]
        return self.issued(client, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)

    def issued(self, client: OAuthClientInformationFull, scopes: list[str]) -> OAuthToken:
        access, refresh = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        client_id = str(client.client_id)
        ends = int(time.time()) + SECONDS
        self.access[access] = AccessToken(token=access, client_id=client_id, scopes=scopes, expires_at=ends)
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes)
        return OAuthToken(access_token=access, expires_in=SECONDS, refresh_token=refresh, scope=" ".join(scopes))


def sdk_settings(port: int) -> Any:
    """Return the settings of the SDK's authorization server: a client has the scopes that it registers, no others."""
    return AuthSettings.model_validate(
        {
            "issuer_url": f"http://localhost:{port}",
            "resource_server_url": f"http://localhost:{port}/mcp",
            "required_scopes": [SCOPE],
            "client_registration_options": {"enabled": True, "valid_scopes": [SCOPE]},
            "revocation_options": {"enabled": True},
        }
    )


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def sdk(port: int, issuer: str) -> None:
    """Serve with the official SDK."""
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("sdk", auth_server_provider=Provider(), auth=sdk_settings(port), log_level="ERROR", tools=[])
    server.add_tool(add)
    server.run("streamable-http", host="127.0.0.1", port=port)


def sdk_1(port: int, issuer: str) -> None:
    """Serve with version 1 of the official SDK, which has an environment of its own."""
    server: Any = import_module("mcp.server.fastmcp").FastMCP(
        "sdk-1",
        auth_server_provider=Provider(),
        auth=sdk_settings(port),
        host="127.0.0.1",
        port=port,
        log_level="ERROR",
    )
    server.add_tool(add)
    server.run("streamable-http")


def fastmcp(port: int, issuer: str) -> None:
    """Serve with FastMCP and its authorization server in memory."""
    auth: Any = import_module("fastmcp.server.auth.providers.in_memory").InMemoryOAuthProvider(
        base_url=f"http://localhost:{port}",
        client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=[SCOPE]),
        required_scopes=[SCOPE],
    )
    _run_fastmcp(port, auth)


def fastmcp_proxy(port: int, issuer: str) -> None:
    """Serve with FastMCP and its proxy before the provider, at which the proxy is registered here."""
    base = f"http://localhost:{port}"
    asked = {
        "redirect_uris": [f"{base}/auth/callback"],
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "client_secret_basic",
        "application_type": "native",
    }
    sent = urllib.request.Request(f"{issuer}/reg", json.dumps(asked).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(sent, timeout=30) as answer:
        made: dict[str, str] = json.load(answer)
    verifier = import_module("fastmcp.server.auth.providers.jwt").JWTVerifier(
        jwks_uri=f"{issuer}/jwks", issuer=issuer, audience=f"{base}/mcp", required_scopes=["mcp:basic"]
    )
    auth: Any = import_module("fastmcp.server.auth").OAuthProxy(
        upstream_authorization_endpoint=f"{issuer}/auth",
        upstream_token_endpoint=f"{issuer}/token",
        upstream_client_id=made["client_id"],
        upstream_client_secret=made["client_secret"],
        token_verifier=verifier,
        base_url=base,
        valid_scopes=["mcp:basic"],
        jwt_signing_key="a key of the test, long enough",
    )
    _run_fastmcp(port, auth)


def _run_fastmcp(port: int, auth: Any) -> None:
    server: Any = import_module("fastmcp").FastMCP("fastmcp", auth=auth)
    server.tool(add)
    server.run(transport="http", host="127.0.0.1", port=port, show_banner=False, log_level="ERROR")


if __name__ == "__main__":
    kind, *issuers, _, number = sys.argv[1:]
    kinds = {"sdk": sdk, "sdk-1": sdk_1, "fastmcp": fastmcp, "fastmcp-proxy": fastmcp_proxy}
    kinds[kind](int(number), issuers[0] if issuers else "")
