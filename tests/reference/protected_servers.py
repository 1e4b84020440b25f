"""MCP servers that want a token of an authorization server: ours, a gateway of ours before the same over pipes, the
SDK's and FastMCP's, each run as a script.

`python protected_servers.py ours|gateway|sdk|fastmcp ISSUER --port PORT`; the tool `whoami` of each answers with the
subject of the token, and `crash` fails.
"""

from __future__ import annotations

import json
import sys
from typing import Any

SCOPES = ["mcp:basic"]
INSIDE = "/srv/secrets/key.pem cannot be read"


def own_server(**options: Any) -> Any:
    """Return a server of ours."""
    from toolweave import CallContext, create_mcp_server

    def whoami(ctx: CallContext) -> str:
        """Say who calls."""
        return json.loads(ctx.principal or "[null, null, null]")[2]

    def crash() -> str:
        """Fail."""
        raise RuntimeError(INSIDE)

    return create_mcp_server(name="ours", version="1", tools=[whoami, crash], **options)


def own_auth(issuer: str, url: str) -> Any:
    """Return the verifier of tokens of ours."""
    from toolweave.serve import JwtAuth

    return JwtAuth(
        issuer=issuer,
        audience=url,
        jwks_url=f"{issuer}/jwks",
        leeway_seconds=0,
        required_scopes=SCOPES,
        resource=url,
        authorization_servers=[issuer],
    )


def ours(port: int, issuer: str, url: str) -> None:
    """Serve with `JwtAuth`."""
    own_server().run("http", port=port, auth=own_auth(issuer, url))


def gateway(port: int, issuer: str, url: str) -> None:
    """Serve our server, which itself wants no token, by the command of a gateway."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from toolweave.cli.main import main

    jwt = {"issuer": issuer, "audience": url, "jwks_url": f"{issuer}/jwks", "leeway_seconds": 0}
    auth = {"jwt": jwt, "required_scopes": SCOPES, "resource": url, "authorization_servers": [issuer]}
    server = {"command": sys.executable, "args": [__file__, "piped"], "tool_prefix": ""}
    with TemporaryDirectory() as folder:
        config = Path(folder) / "gateway.json"
        config.write_text(json.dumps({"mcpServers": {"ours": server}, "gateway": {"auth": auth}}))
        main(["gateway", "--config", str(config), "--http", f"127.0.0.1:{port}", "--drain", "0"])


def piped() -> None:
    """Serve our server over pipes, where it says what is wrong inside unless it is told not to."""
    own_server(expose_errors="masked").run_stdio()


def sdk(port: int, issuer: str, url: str) -> None:
    """Serve with the official SDK, which leaves the verification to its user."""
    import jwt
    from mcp.server.auth.middleware.auth_context import get_access_token
    from mcp.server.auth.provider import AccessToken
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.mcpserver import MCPServer

    keys = jwt.PyJWKClient(f"{issuer}/jwks")

    class Verifier:
        async def verify_token(self, token: str) -> AccessToken | None:
            try:
                key = keys.get_signing_key_from_jwt(token).key
                claims: dict[str, Any] = jwt.decode(token, key, algorithms=["RS256"], audience=url, issuer=issuer)
            except jwt.InvalidTokenError:
                return None
            scopes = str(claims.get("scope", "")).split()
            return AccessToken(
                token=token, client_id=claims["client_id"], scopes=scopes, subject=claims["sub"], resource=url
            )

    settings = AuthSettings.model_validate(
        {
            "issuer_url": issuer,
            "resource_server_url": url,
            "required_scopes": SCOPES,
            "validate_token_resource": True,
        }
    )
    server = MCPServer("sdk", token_verifier=Verifier(), auth=settings, log_level="ERROR")

    @server.tool()
    def whoami() -> str:  # pyright: ignore[reportUnusedFunction]
        """Say who calls."""
        token = get_access_token()
        return (token and token.subject) or ""

    @server.tool()
    def crash() -> str:  # pyright: ignore[reportUnusedFunction]
        """Fail."""
        raise RuntimeError(INSIDE)

    server.run("streamable-http", host="127.0.0.1", port=port)


def fastmcp(port: int, issuer: str, url: str) -> None:
    """Serve with FastMCP, which has an environment of its own."""
    from importlib import import_module

    auth: Any = import_module("fastmcp.server.auth")
    verifier = import_module("fastmcp.server.auth.providers.jwt").JWTVerifier(
        jwks_uri=f"{issuer}/jwks", issuer=issuer, audience=url, required_scopes=SCOPES
    )
    current: Any = import_module("fastmcp.server.dependencies").get_access_token
    server: Any = import_module("fastmcp").FastMCP(
        "fastmcp",
        auth=auth.RemoteAuthProvider(
            token_verifier=verifier, authorization_servers=[issuer], base_url=url.removesuffix("/mcp")
        ),
    )

    @server.tool
    def whoami() -> str:  # pyright: ignore[reportUnusedFunction]
        """Say who calls."""
        return current().claims["sub"]

    @server.tool
    def crash() -> str:  # pyright: ignore[reportUnusedFunction]
        """Fail."""
        raise RuntimeError(INSIDE)

    server.run(transport="http", host="127.0.0.1", port=port, show_banner=False, log_level="ERROR")


if __name__ == "__main__":
    if sys.argv[1:] == ["piped"]:
        piped()
        sys.exit()
    kind, issuer, _, port = sys.argv[1:]
    {"ours": ours, "gateway": gateway, "sdk": sdk, "fastmcp": fastmcp}[kind](
        int(port), issuer, f"http://localhost:{port}/mcp"
    )
