"""Signing in at a server that asks for it: from the first refusal to the call that works."""

from __future__ import annotations

import json
import logging
from typing import Any

import anyio
import pytest

from tests.connect.scripted import Exchange, HttpScript, listening, modern_answer
from tests.connect.targets import connected
from tests.oauth.world import another_host, basic, form_of, refuse, world
from toolweave import AuthRequiredError, ConnectError, connect_mcp
from toolweave.oauth import TokenKey, resource_of, sign_in, sign_out


async def test_one_word_is_enough_to_sign_in_at_a_server_that_registers_clients() -> None:
    async with world() as here, connected(here.target()) as connection:
        assert (await connection.call_tool("t")).text == "done"
        assert len(here.person.asked) == 1
        (asked,), (form,) = here.host.authorizations(), here.host.forms()
        assert asked["resource"] == form["resource"] == here.server.url
        assert asked["code_challenge_method"] == "S256"
        assert "scope" not in asked
        assert set(here.server.tokens()) == {"", f"Bearer {next(iter(here.host.tokens))}"}


@pytest.mark.slow
async def test_a_token_costs_no_more_than_a_header_once_it_is_there() -> None:
    async with world() as here, connected(here.target()) as connection:
        for _ in range(3):
            await connection.call_tool("t")
        before = len(here.server.exchanges)
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(connection.call_tool, "t")
        assert len(here.server.exchanges) == before + 20
        assert len(here.host.forms()) == 1


@pytest.mark.parametrize(
    ("challenge", "supported", "offered", "wanted"),
    [
        ("a b", ["c"], None, "a b"),
        (None, ["c", "d"], None, "c d"),
        (None, None, ["x", "offline_access"], None),
        ("a", None, ["offline_access"], "a offline_access"),
    ],
)
async def test_the_scopes_are_the_challenges_else_those_of_the_metadata_else_none(
    challenge: str | None, supported: list[str] | None, offered: list[str] | None, wanted: str | None
) -> None:
    async with world() as here:
        here.server.challenge["scope"] = challenge
        here.server.metadata["scopes_supported"] = supported
        here.host.extra["scopes_supported"] = offered
        async with connected(here.target()):
            pass
        (asked,) = here.host.authorizations()
        assert asked.get("scope") == wanted
        assert ("prompt" in asked) == ("offline_access" in (wanted or ""))


async def test_configured_scopes_are_asked_for_as_they_are() -> None:
    async with world() as here:
        here.server.challenge["scope"] = "a b"
        async with connected(here.target(scopes=["mine"])):
            pass
        assert here.host.authorizations()[0]["scope"] == "mine"


async def test_a_given_client_is_registered_nowhere_and_its_secret_goes_in_the_header() -> None:
    async with world() as here:
        async with connected(here.target(client_id="me & you", client_secret="p/w")) as connection:
            assert (await connection.call_tool("t")).text == "done"
        assert "/register" not in here.host.paths()
        (token,) = [one for one in here.host.requests if one.path == "/token"]
        assert token.headers["authorization"] == basic("me & you", "p/w")
        assert "client_secret" not in form_of(token)


async def test_the_document_of_a_client_is_its_id_where_the_server_reads_such_documents() -> None:
    document = "https://client.example/metadata.json"
    async with world() as here:
        async with connected(here.target(client_metadata_url=document)):
            pass
        assert here.host.authorizations()[0]["client_id"] == "client-1"
        here.host.extra["client_id_metadata_document_supported"] = True
        await sign_in(here.settings(client_metadata_url=document), here.server.url, server="s", **here.ports())
        assert here.host.authorizations()[1]["client_id"] == document


async def test_a_registration_names_a_native_application_that_renews_its_tokens() -> None:
    async with world() as here:
        async with connected(here.target()):
            pass
        (asked,) = [json.loads(one.body) for one in here.host.requests if one.path == "/register"]
        assert asked["application_type"] == "native"
        assert asked["grant_types"] == ["authorization_code", "refresh_token"]
        assert asked["token_endpoint_auth_method"] == "none"


async def test_a_client_is_registered_once_and_used_again() -> None:
    async with world() as here:
        for _ in range(2):
            await sign_in(here.settings(), here.server.url, server="s", **here.ports())
        assert here.host.paths().count("/register") == 1


async def test_a_registration_with_a_secret_and_no_method_is_a_basic_one() -> None:
    async def registered(exchange: Exchange) -> None:
        await exchange.respond_json(201, {"client_id": "c", "client_secret": "s3cr3t"})

    async with world() as here:
        here.host.answer["/register"] = registered
        await sign_in(here.settings(), here.server.url, server="s", **here.ports())
        (token,) = [one for one in here.host.requests if one.path == "/token"]
        assert token.headers["authorization"] == basic("c", "s3cr3t")


async def test_a_connection_without_a_person_says_what_to_run_and_goes_on_once_somebody_has() -> None:
    async with world() as here:
        target = {**here.target(user_agent=None), "name": "github"}
        with pytest.raises(AuthRequiredError, match=r"call `toolweave\.oauth\.sign_in` with the same settings"):
            await connect_mcp(target)
        assert here.host.requests == []
        await sign_in(here.settings(), here.server.url, server="github", **here.ports())
        async with connected(target) as connection:
            assert (await connection.call_tool("t")).text == "done"
        assert len(here.host.authorizations()) == 1


async def test_an_open_connection_goes_on_by_itself_once_somebody_has_signed_in_again() -> None:
    async with world() as here:
        here.host.rotates = False
        await sign_in(here.settings(), here.server.url, server="s", **here.ports())
        async with connected(here.target(user_agent=None)) as connection:
            assert (await connection.call_tool("t")).text == "done"
            here.host.tokens.clear()
            here.host.refresh_tokens.clear()
            with pytest.raises(AuthRequiredError, match=r"toolweave\.oauth\.sign_in"):
                await connection.call_tool("t")
            await sign_in(here.settings(), here.server.url, server="s", **here.ports())
            assert (await connection.call_tool("t")).text == "done"


async def test_a_server_that_wants_no_token_is_not_signed_in_at() -> None:
    script = HttpScript(modern_answer)
    async with listening(script.handle) as (url, _), connected({"url": url, "auth": "oauth"}) as connection:
        assert (await connection.call_tool("t")).text == "done"
    assert {one.path for one in script.exchanges} == {"/mcp"}


async def test_a_token_serves_other_connections_and_later_ones() -> None:
    async with world() as here:
        async with connected(here.target()), connected(here.target()) as connection:
            assert (await connection.call_tool("t")).text == "done"
        async with connected(here.target()) as connection:
            assert (await connection.call_tool("t")).text == "done"
        assert len(here.person.asked) == 1


async def test_thirty_calls_at_once_ask_a_person_once_whatever_the_answer() -> None:
    async with world() as here:
        async with connected(here.target()) as connection:
            here.host.tokens.clear()
            here.host.refresh_tokens.clear()
            here.host.delay = 0.05
            async with anyio.create_task_group() as tasks:
                for _ in range(30):
                    tasks.start_soon(connection.call_tool, "t")
        assert len(here.person.asked) == 2


async def test_two_principals_never_share_a_token() -> None:
    async with world() as here:
        for principal in ("ann", "bob"):
            async with connected(here.target(principal=principal)) as connection:
                await connection.call_tool("t")
        assert len(here.person.asked) == 2
        assert len(set(here.server.tokens()) - {""}) == 2
        keys = {record.key for record in await here.store.records()}
        assert keys == {
            TokenKey(issuer=here.host.issuer, resource=resource_of(here.server.url), principal=who)
            for who in ("ann", "bob")
        }


async def test_signing_out_revokes_and_deletes() -> None:
    async with world() as here:
        record = await sign_in(here.settings(), here.server.url, server="s", **here.ports())
        (done,) = await sign_out(here.settings(), here.server.url, server="s", store=here.store)
        assert (done.key, done.revoked, done.problem) == (record.key, True, "")
        assert here.host.tokens == here.host.refresh_tokens == {}
        assert list(await here.store.records()) == []
        assert await sign_out(here.settings(), here.server.url, server="s", store=here.store) == ()


async def test_what_cannot_be_revoked_is_deleted_all_the_same_and_told() -> None:
    async with world() as here:
        await sign_in(here.settings(), here.server.url, server="s", **here.ports())
        here.host.extra["revocation_endpoint"] = None
        (done,) = await sign_out(here.settings(), here.server.url, server="s", store=here.store)
        assert not done.revoked
        assert "does not support revocation" in done.problem
        assert list(await here.store.records()) == []


async def test_an_operation_that_needs_more_rights_asks_for_all_of_them_once(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as here:
        here.server.challenge["scope"] = None
        here.server.metadata["scopes_supported"] = ["basic"]
        here.server.needs = {"tools/call": "write"}
        del here.server.challenge["scope"]
        async with connected(here.target()) as connection:
            assert (await connection.call_tool("t")).text == "done"
        assert [one.get("scope") for one in here.host.authorizations()] == ["basic", "basic write"]


async def test_a_server_that_never_has_enough_is_given_up_and_that_is_remembered() -> None:
    async def never(exchange: Exchange) -> None:
        await exchange.respond(403, www_authenticate='Bearer error="insufficient_scope", scope="more"')

    async with world() as here, connected(here.target(scopes=["basic"])) as connection:
        here.server.answer["/mcp"] = never
        for _ in range(3):
            with pytest.raises(AuthRequiredError):
                await connection.call_tool("t")
        assert len(here.host.authorizations()) == 2


async def test_more_rights_without_a_person_are_asked_for_by_name() -> None:
    async with world() as here:
        here.server.needs = {"tools/call": "write"}
        await sign_in(here.settings(scopes=["basic"]), here.server.url, server="s", **here.ports())
        target = {**here.target(user_agent=None, scopes=["basic"]), "name": "files"}
        async with connected(target) as connection:
            with pytest.raises(AuthRequiredError, match=r"sign_in` with the same settings and the scopes 'write'"):
                await connection.call_tool("t")
            settings = here.settings(scopes=["basic"])
            await sign_in(settings, here.server.url, server="files", scopes=["write"], **here.ports())
            assert (await connection.call_tool("t")).text == "done"


@pytest.mark.parametrize("given", [False, True])
async def test_a_server_that_moves_its_authorization_server_gets_nothing_of_the_old_one(given: bool) -> None:
    client: dict[str, Any] = {"client_id": "mine", "client_secret": "s3cr3t"} if given else {}
    async with world() as here, another_host() as other, connected(here.target(**client)) as connection:
        assert (await connection.call_tool("t")).text == "done"
        old = {*here.host.tokens, *here.host.refresh_tokens, "s3cr3t", "mine"}
        here.server.host = other
        if given:
            with pytest.raises(AuthRequiredError, match=r"'oauth\.client_id' is not sent there"):
                await connection.call_tool("t")
        else:
            assert (await connection.call_tool("t")).text == "done"
            assert other.paths().count("/register") == 1
        sent = "".join(f"{one.headers}{one.body!r}{one.query}" for one in other.requests)
        assert not [secret for secret in old if secret in sent]
        assert basic("mine", "s3cr3t") not in sent


async def test_the_first_authorization_server_that_answers_is_taken() -> None:
    async with world() as here:
        here.server.metadata["authorization_servers"] = ["http://127.0.0.1:9", here.host.issuer]
        async with connected(here.target()) as connection:
            assert (await connection.call_tool("t")).text == "done"


async def test_a_configured_issuer_is_the_only_one_that_is_taken() -> None:
    async with world() as here, another_host() as other:
        here.server.metadata["authorization_servers"] = [other.issuer, here.host.issuer]
        async with connected(here.target(issuer=here.host.issuer)) as connection:
            assert (await connection.call_tool("t")).text == "done"
        assert other.requests == []
        here.server.metadata["authorization_servers"] = [other.issuer]
        with pytest.raises(AuthRequiredError, match="which is configured"):
            await sign_in(here.settings(issuer=here.host.issuer), here.server.url, server="s", **here.ports())


@pytest.mark.parametrize("revision", ["2025-03-26", "auto"])
async def test_a_server_without_metadata_is_its_own_issuer_in_the_first_revision_alone(revision: str) -> None:
    async with world() as here:
        server, host = here.server, here.host
        server.challenge["resource_metadata"] = None
        server.answer["/.well-known/oauth-protected-resource/mcp"] = lambda one: one.respond(404)
        for path in ("/authorize", "/token", "/register"):
            server.answer[path] = host.handle
        host.url = server.origin
        host.redirect["iss"] = None
        call = sign_in(here.settings(), server.url, server="s", revision=revision, **here.ports())
        if revision == "auto":
            with pytest.raises(AuthRequiredError, match="no protected-resource metadata"):
                await call
            assert host.requests == []
        else:
            assert (await call).access_token in host.tokens


async def test_an_authorization_server_that_is_down_is_no_refusal() -> None:
    async with world() as here:
        here.host.answer["/token"] = lambda one: one.respond(503)
        with pytest.raises(ConnectError, match="HTTP 503") as failed:
            await sign_in(here.settings(), here.server.url, server="s", **here.ports())
        assert not isinstance(failed.value, AuthRequiredError)


async def test_a_person_who_refuses_is_told_so() -> None:
    async with world() as here:
        here.host.redirect = {"code": None, "error": "access_denied", "error_description": "not\x1b[31m today"}
        with pytest.raises(AuthRequiredError, match=r"access_denied: not\\x1b\[31m today"):
            await connect_mcp(here.target())


async def test_no_secret_is_in_a_log_an_error_or_a_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with world() as here:
        settings = here.settings(client_id="mine", client_secret="s3cr3t-value")
        async with connected({**here.target(), "auth": settings}) as connection:
            await connection.call_tool("t")
            (record,) = await here.store.records()
            shown = f"{settings!r}{record!r}{connection!r}{here.store!r}"
            here.host.answer["/token"] = lambda one: refuse(one, "invalid_scope", one.body.decode())
            here.host.tokens.clear()
            with pytest.raises(ConnectError) as failed:
                await connection.call_tool("t")
            shown += str(failed.value)
        secrets = {"s3cr3t-value", record.access_token, str(record.refresh_token)}
        secrets |= {one["code"] for one in here.host.forms("authorization_code")}
        secrets |= {one["code_verifier"] for one in here.host.forms("authorization_code")}
        assert not [secret for secret in secrets if secret in shown + caplog.text]
