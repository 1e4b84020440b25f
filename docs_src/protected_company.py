"""An authorization server in front of a company's provider, and what clients read of it first."""

from __future__ import annotations

import sys

from toolweave import create_mcp_server
from toolweave.serve import ClientRules, OAuthServer, Upstream
from toolweave.state import MemoryStore


def search(query: str) -> str:
    """Find notes by their text."""
    return f"no note has {query!r}"


auth = OAuthServer(
    url="https://notes.example/mcp",
    upstream=Upstream.entra("7c4ad1a0-tenant", "client-id", "client-secret"),
    store=MemoryStore(),  # SqliteStore or RedisStore: clients and grants outlive a restart
    secret="thirty-two random bytes or more, kept in your settings",
    clients=ClientRules(redirect_allowed=lambda uri: not uri.startswith("https://chat.example/")),
    allow=lambda claims: claims.get("department") == "research",
    required_scopes=["notes"],
)
server = create_mcp_server("notes", tools=[search], auth=auth)
for name in ("issuer", "registration_endpoint", "code_challenge_methods_supported"):
    print(auth.metadata()[name])

if "--serve" in sys.argv:
    server.run_http("0.0.0.0", 8000, allowed_hosts=["notes.example"])
