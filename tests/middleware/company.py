"""A server with something of each kind for the tests of middleware, and callers with tokens. Asserts nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from tests.serve.lines import EVERYTHING, Peer
from tests.serve.serving import Served, served_http
from toolweave import McpConnection, connect_mcp, tool
from toolweave.protocol.versions import MODERN_VERSION
from toolweave.serve import BearerAuth, Identity, McpServer, Middleware, create_mcp_server, prompt, resource

__all__ = ["Json", "caller", "company", "identity_of", "joined", "token_of"]

Json = dict[str, Any]


def token_of(subject: str, *scopes: str, **claims: Any) -> str:
    """Return a token that `identity_of` reads."""
    return json.dumps({"sub": subject, "scopes": scopes, "claims": claims}).encode().hex()


def identity_of(token: str) -> Identity:
    """Return the identity of a token."""
    said = json.loads(bytes.fromhex(token))
    return Identity(
        client_id="app",
        subject=said["sub"],
        issuer="https://issuer.example",
        scopes=tuple(said["scopes"]),
        claims=said["claims"],
    )


def company(  # noqa: C901  # one function for each thing that is offered
    *middleware: Middleware, **options: Any
) -> McpServer:
    """Return a server with tools, prompts, resources, templates and completions."""

    @tool(annotations={"readOnlyHint": True})
    def find(text: str = "") -> str:
        """Find something."""
        return f"found {text}"

    @tool
    def change(text: str = "", amount: int = 0) -> str:
        """Change something."""
        return f"changed {text}"

    @tool(annotations={"destructiveHint": True})
    def wipe() -> str:
        """Wipe everything."""
        return "wiped"

    @prompt
    def greet(name: str = "you") -> str:
        """Greet."""
        return f"hello {name}"

    @prompt
    def confess() -> str:
        """Confess."""
        return "it was me"

    @resource("notes://open/{name}")
    def note(name: str) -> str:
        """Read a note."""
        return name

    @resource("notes://secret/{name}")
    def secret(name: str) -> str:
        """Read a secret."""
        return name

    @resource("notes://diary")
    def diary() -> str:
        """Read the diary."""
        return "dear diary"

    server = create_mcp_server(
        "company",
        tools=[find, change, wipe],
        prompts=[greet, confess],
        resources=[note, secret, diary],
        middleware=middleware,
        **options,
    )
    server.alias("erase", "wipe")

    @server.completion(ref="prompt:confess", argument="name")
    def names(text: str) -> list[str]:
        return ["Ada"]

    @server.completion(ref="resource:notes://secret/{name}", argument="name")
    def secrets(text: str) -> list[str]:
        return ["password"]

    return server


def caller(
    token: str | None = None,
    *,
    version: str = MODERN_VERSION,
    capabilities: Mapping[str, Any] = EVERYTHING,
    **more: Any,
) -> Peer:
    """Return a client of an endpoint with the identity of a token."""
    peer = Peer(version=version, capabilities=capabilities, **more)
    if token is not None:
        identity = identity_of(token)
        peer.client = replace(peer.client, identity=identity, principal=identity.principal)
    return peer


@asynccontextmanager
async def joined(server: Served, token: str, era: str) -> AsyncGenerator[McpConnection]:
    """Connect to a server over HTTP with a token."""
    async with (
        served_http(server, auth=BearerAuth(identity_of)) as url,
        connect_mcp({"url": url, "protocol": era, "headers": {"Authorization": f"Bearer {token}"}}) as connection,
    ):
        yield connection
