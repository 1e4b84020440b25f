"""Callers of a gateway sign in at servers behind a foreign authorization server, each in a browser of its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.conformance.server_process import serving
from tests.reference.authorization import AuthorizationServer
from tests.reference.person import visit
from tests.reference.servers import INSTALLED
from tests.serve.serving import served_http
from toolweave import connect_mcp
from toolweave.gateway import create_gateway
from toolweave.oauth import MemoryTokenStore
from toolweave.serve import ApiKey, ApiKeyAuth

pytestmark = [pytest.mark.reference, pytest.mark.slow]

SCRIPT = str(Path(__file__).with_name("protected_servers.py"))
PYTHONS = {"ours": sys.executable, "sdk": sys.executable, "fastmcp": str(INSTALLED / "fastmcp" / "bin" / "python")}
SHORT_SECONDS = 3
SECONDS = 120
USERS = ("ada", "bob")


@pytest.fixture(scope="module")
def authorization() -> Iterator[AuthorizationServer]:
    """An authorization server whose access tokens soon expire."""
    with AuthorizationServer(seconds=SHORT_SECONDS) as server:
        yield server


def key_of(user: str) -> str:
    return f"the-key-of-{user}-0123456789"


@pytest.mark.parametrize("kind", PYTHONS)
async def test_each_caller_is_itself_at_a_foreign_server_behind_a_foreign_authorization_server(
    kind: str, authorization: AuthorizationServer, tmp_path: Path
) -> None:
    keys = ApiKeyAuth([ApiKey(name=user, key=key_of(user)) for user in USERS])
    with serving(tmp_path / "log", command=(PYTHONS[kind], SCRIPT, kind, authorization.issuer)) as upstream:
        entry = {"url": upstream, "auth": {"type": "oauth", "identity": "caller"}}
        gateway = create_gateway({"api": entry}, auth=keys, token_store=MemoryTokenStore())
        with anyio.fail_after(SECONDS):
            async with served_http(gateway) as url:
                for user in USERS:
                    async with connect_mcp({"url": url, "auth": key_of(user)}) as caller:
                        asked = await caller.call_tool("api_whoami")
                        link = re.search(r"http://127\.0\.0\.1:\d+/auth/sign-in/[\w.-]+", asked.text)
                        assert link is not None, asked.text
                        page = await anyio.to_thread.run_sync(visit, user, link[0])
                        code = re.search(r"<code>(\d{4} \d{4})</code>", page)
                        assert code is not None, page
                        done = await caller.call_tool("api_sign_in", {"code": code[1]})
                        assert not done.is_error, done.text
                await anyio.sleep(SHORT_SECONDS)  # the tokens have ended, and are renewed
                for user in USERS:
                    async with connect_mcp({"url": url, "auth": key_of(user)}) as caller:
                        assert (await caller.call_tool("api_whoami")).text == user
    assert authorization.said.count("grant refresh_token") >= len(USERS)
