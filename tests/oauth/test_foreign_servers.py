"""Signing in at authorization servers of others, up to a call and through a renewal of the token."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conformance.headless import REDIRECT_URI
from tests.conformance.server_process import serving
from tests.connect.targets import connected
from tests.oauth.keycloak import keycloak_world
from tests.oauth.world import Person
from toolweave import AuthRequiredError
from toolweave.config import Secret
from toolweave.oauth import MemoryTokenStore, OAuth, TokenRecord

pytestmark = pytest.mark.requirement("R27")

SCRIPT = str(Path(__file__).with_name("foreign_servers.py"))


async def called(url: str, store: MemoryTokenStore, person: Person | None, tool: str, expected: str) -> TokenRecord:
    """Call a tool of the server at a URL, signing in if needed; return the token that it was called with."""
    auth = OAuth(store=store, user_agent=person)
    arguments = {"a": 2, "b": 3} if tool == "add" else {}
    async with connected({"url": url, "auth": auth}) as connection:
        assert (await connection.call_tool(tool, arguments)).text == expected
    (record,) = await store.records()
    return record


async def renewed(url: str, record: TokenRecord, tool: str, expected: str) -> TokenRecord:
    """Call a tool with a token that the server does not accept any more; return the token that replaced it."""
    store = MemoryTokenStore()
    await store.save(record.replace(access_token="not a token of this server"))
    nobody = Person()
    after = await called(url, store, nobody, tool, expected)
    assert nobody.asked == []
    assert after.access_token not in (record.access_token, "not a token of this server")
    return after


@pytest.mark.slow
async def test_a_client_signs_in_at_the_official_sdks_server_and_renews_its_token(tmp_path: Path) -> None:
    with serving(tmp_path / "log", command=(sys.executable, SCRIPT, "sdk")) as url:
        person = Person()
        record = await called(url, MemoryTokenStore(), person, "add", "5")
        assert len(person.asked) == 1
        assert record.scopes == ("read",)
        again = await renewed(url, record, "add", "5")
        assert (await renewed(url, again, "add", "5")).registration == record.registration


async def test_a_client_signs_in_at_a_realm_whose_issuer_has_a_path_and_renews_its_token() -> None:
    async with keycloak_world() as (host, server):
        server.challenge["scope"] = "mcp:tools"
        record = await called(server.url, MemoryTokenStore(), Person(), "t", "done")
        assert record.key.issuer == f"{host.url}/realms/work"
        assert record.scopes == ("mcp:tools", "offline_access")
        (asked,) = host.registrations()
        assert asked["scope"] == "mcp:tools offline_access"
        await renewed(server.url, record, "t", "done")


async def test_a_registration_that_is_refused_for_its_scopes_is_asked_for_again_without_them() -> None:
    async with keycloak_world() as (host, server):
        server.challenge["scope"] = "openid mcp:tools"
        record = await called(server.url, MemoryTokenStore(), Person(), "t", "done")
        assert "openid" in record.scopes
        assert ["scope" in asked for asked in host.registrations()] == [True, False]
        await renewed(server.url, record, "t", "done")


async def test_a_realm_that_refuses_every_registration_is_asked_twice_and_its_reason_is_in_the_error() -> None:
    async with keycloak_world() as (host, server):
        server.challenge["scope"] = "admin"
        with pytest.raises(AuthRequiredError, match="invalid_scope: Invalid scopes: admin"):
            await called(server.url, MemoryTokenStore(), Person(), "t", "done")
        assert len(host.registrations()) == 2


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_a_client_authenticates_by_the_method_that_the_server_registered_it_for(method: str) -> None:
    async with keycloak_world() as (host, server):
        host.method = method
        record = await called(server.url, MemoryTokenStore(), Person(), "t", "done")
        assert record.registration is not None
        assert record.registration.method == method
        await renewed(server.url, record, "t", "done")


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_a_client_that_was_registered_by_hand_finds_out_where_its_secret_is_expected(method: str) -> None:
    async with keycloak_world() as (host, server):
        host.clients["notes"] = {
            "client_secret": "s3cr3t & more",
            "token_endpoint_auth_method": method,
            "scope": "mcp:tools",
            "redirect_uris": [REDIRECT_URI],
        }
        store, person = MemoryTokenStore(), Person()
        auth = OAuth(store=store, user_agent=person, client_id="notes", client_secret=Secret("s3cr3t & more"))
        async with connected({"url": server.url, "auth": auth}) as connection:
            assert (await connection.call_tool("t")).text == "done"
        (record,) = await store.records()
        assert record.registration is not None
        assert record.registration.method == method
        assert host.registrations() == []


async def test_a_secret_that_is_wrong_is_sent_in_both_places_and_then_refused() -> None:
    async with keycloak_world() as (host, server):
        host.clients["notes"] = {
            "client_secret": "right",
            "token_endpoint_auth_method": "client_secret_basic",
            "scope": "mcp:tools",
            "redirect_uris": [REDIRECT_URI],
        }
        auth = OAuth(store=MemoryTokenStore(), user_agent=Person(), client_id="notes", client_secret=Secret("wrong"))
        with pytest.raises(AuthRequiredError, match="unauthorized_client") as failed:
            async with connected({"url": server.url, "auth": auth}):
                pass
        assert "wrong" not in str(failed.value)
        tokens = [one for one in host.requests if one.path.endswith("/token")]
        assert ["authorization" in one.headers for one in tokens] == [True, False]


async def test_a_client_is_registered_anew_for_scopes_that_it_was_not_registered_for() -> None:
    async with keycloak_world() as (host, server):
        server.metadata["scopes_supported"] = ["mcp:tools"]
        server.needs["tools/call"] = "mcp:tools roles"
        store = MemoryTokenStore()
        record = await called(server.url, store, Person(), "t", "done")
        assert set(record.scopes) >= {"mcp:tools", "roles"}
        assert [asked["scope"] for asked in host.registrations()] == [
            "mcp:tools offline_access",
            "mcp:tools offline_access roles",
        ]
