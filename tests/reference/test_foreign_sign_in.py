"""Clients of others sign in to a server of ours, whose people are at a provider of others."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.programs import free_port
from tests.reference.authorization import AuthorizationServer
from tests.reference.servers import INSTALLED
from tests.serve.serving import served_app
from toolweave import create_mcp_server
from toolweave.serve import OAuthServer, Upstream
from toolweave.state import MemoryStore

pytestmark = [pytest.mark.reference, pytest.mark.slow]

HERE = Path(__file__).parent
CLIENTS = {"python-sdk": sys.executable, "fastmcp": str(INSTALLED / "fastmcp" / "bin" / "python")}
SECONDS = 120


@pytest.fixture
def provider() -> Iterator[AuthorizationServer]:
    """The provider of others."""
    with AuthorizationServer() as server:
        yield server


def registered(issuer: str, callback: str) -> Upstream:
    """Register our server at the provider, as a person does by hand."""
    asked = {
        "redirect_uris": [callback],
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "client_secret_basic",
        "application_type": "native",
    }
    sent = urllib.request.Request(f"{issuer}/reg", json.dumps(asked).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(sent, timeout=30) as answer:
        made: dict[str, str] = json.load(answer)
    return Upstream.oidc(issuer, made["client_id"], made["client_secret"])


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_foreign_client_signs_in_through_our_server_at_a_foreign_provider(
    client: str, provider: AuthorizationServer, tmp_path: Path
) -> None:
    port, store = free_port(), MemoryStore()
    url = f"http://127.0.0.1:{port}/mcp"
    auth = OAuthServer(
        url=url,
        upstream=registered(provider.issuer, f"http://127.0.0.1:{port}/oauth/callback"),
        store=store,
        secret="of the test, thirty-two bytes or more",
        required_scopes=["notes"],
    )

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    server = create_mcp_server("sums", tools=[add])
    person = f"{sys.executable} {HERE / 'person.py'} ada %s &"  # not waited for, as a browser is not
    environment = {**os.environ, "BROWSER": person, "HOME": str(tmp_path), "NO_PROXY": "127.0.0.1"}
    command = [CLIENTS[client], str(HERE / "clients" / "signing_in.py"), client, url]
    async with served_app(server.asgi_app(auth=auth), port=port):
        with anyio.fail_after(SECONDS):
            done = await anyio.run_process(command, env=environment, check=False)

    assert done.returncode == 0, done.stderr.decode()[-2000:]
    seen: dict[str, Any] = json.loads(done.stdout.decode().splitlines()[-1])
    assert seen["tools"] == ["add"]
    assert seen["sum"] == "5"
    assert seen.get("refreshes", True)
    assert [grant.value["subject"] for grant in await store.scan("toolweave.oauth.grants")] == ["ada"]
