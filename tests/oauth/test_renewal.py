"""Tokens that end: renewed without a person, once, and kept where the authorization server is only unwell."""

from __future__ import annotations

import time

import anyio
import pytest

from tests.connect.scripted import Exchange
from tests.connect.targets import connected
from tests.oauth.world import World, refuse, world
from toolweave import AuthRequiredError, ConnectError, connect_mcp
from toolweave.errors import StoreError
from toolweave.oauth import MemoryTokenStore, TokenKey, TokenRecord, sign_in


async def signed_in(here: World) -> TokenRecord:
    """Sign in, as another process has done it."""
    return await sign_in(here.settings(), here.server.url, server="s", **here.ports())


async def expire(here: World) -> None:
    """Let the kept token be one that has expired."""
    (record,) = await here.store.records()
    here.host.tokens.clear()
    await here.store.save(record.replace(expires_at=time.time() - 60))


async def test_a_refused_token_is_renewed_without_a_person() -> None:
    async with world() as here, connected(here.target()) as connection:
        here.host.tokens.clear()
        assert (await connection.call_tool("t")).text == "done"
        assert len(here.person.asked) == 1
        (form,) = here.host.forms("refresh_token")
        assert form["resource"] == here.server.url


async def test_a_token_that_expired_while_nothing_ran_is_renewed_at_the_next_start() -> None:
    async with world() as here:
        await signed_in(here)
        await expire(here)
        async with connected(here.target(user_agent=None)) as connection:
            assert (await connection.call_tool("t")).text == "done"
        assert len(here.host.forms("refresh_token")) == 1


async def test_a_token_is_renewed_before_it_ends() -> None:
    async with world() as here, connected(here.target()) as connection:
        here.host.seconds = 0  # of no use: it does not say when it ends
        here.host.tokens.clear()
        await connection.call_tool("t")
        here.host.seconds = 3600
        here.host.tokens.clear()
        await connection.call_tool("t")
        refusals = here.server.tokens().count("")
        (record,) = await here.store.records()
        assert record.expires_at is not None
        assert record.expires_at > time.time() + 3000
        assert refusals == 1


async def test_a_hundred_calls_with_an_ended_token_renew_it_once() -> None:
    async with world() as here, connected(here.target()) as connection:
        here.host.tokens.clear()
        here.host.delay = 0.05
        answers: list[str] = []

        async def call() -> None:
            answers.append((await connection.call_tool("t")).text)

        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(call)
        assert answers == ["done"] * 100
        assert len(here.host.forms("refresh_token")) == 1
        assert len(here.person.asked) == 1


async def test_of_two_who_share_a_store_one_renews_and_the_other_takes_its_token() -> None:
    async with (
        world() as here,
        connected(here.target(client_name="one")) as one,
        connected(here.target(client_name="two")) as two,
    ):
        here.host.tokens.clear()
        here.host.delay = 0.05
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.call_tool, "t")
            tasks.start_soon(two.call_tool, "t")
        assert (await one.call_tool("t")).text == (await two.call_tool("t")).text == "done"
        assert len(here.host.forms("refresh_token")) == 1


async def test_who_gives_up_waiting_loses_no_rotated_token() -> None:
    async with world() as here, connected(here.target()) as connection:
        here.host.tokens.clear()
        here.host.delay = 0.2
        with anyio.move_on_after(0.1):
            await connection.call_tool("t")
        assert (await connection.call_tool("t")).text == "done"
        assert len(here.person.asked) == 1


@pytest.mark.parametrize("code", ["invalid_grant", "invalid_client", "unauthorized_client"])
async def test_a_refresh_token_that_is_refused_for_good_leads_to_a_sign_in(code: str) -> None:
    async with world() as here, connected(here.target()) as connection:
        here.host.tokens.clear()

        async def token(exchange: Exchange) -> None:
            del here.host.answer["/token"]
            await refuse(exchange, code)

        here.host.answer["/token"] = token
        assert (await connection.call_tool("t")).text == "done"
        assert len(here.person.asked) == 2
        assert here.host.paths().count("/register") == (1 if code == "invalid_grant" else 2)


@pytest.mark.parametrize("trouble", ["503", "html", "temporarily_unavailable", "reset", "429"])
async def test_an_unwell_authorization_server_costs_no_refresh_token(trouble: str) -> None:
    async def token(exchange: Exchange) -> None:
        match trouble:
            case "html":
                await exchange.respond(502, b"<html>bad gateway", content_type="text/html")
            case "reset":
                await exchange.reset()
            case "temporarily_unavailable":
                await refuse(exchange, trouble)
            case status:
                await exchange.respond(int(status))

    async with world() as here, connected(here.target()) as connection:
        here.host.tokens.clear()
        here.host.answer["/token"] = token
        with pytest.raises(ConnectError, match=r"signing in.* failed: ") as failed:
            await connection.call_tool("t")
        assert failed.value.kind == "not_sent"
        del here.host.answer["/token"]
        assert (await connection.call_tool("t")).text == "done"
        assert len(here.person.asked) == 1


async def test_who_has_signed_out_elsewhere_is_signed_out_here() -> None:
    async with world() as here:
        await signed_in(here)
        async with connected(here.target(user_agent=None)) as connection:
            here.host.tokens.clear()
            for record in await here.store.records():
                await here.store.delete(record.key)
            with pytest.raises(AuthRequiredError):
                await connection.call_tool("t")
        assert here.host.forms("refresh_token") == []


async def test_a_token_that_its_own_server_does_not_take_asks_a_person_once() -> None:
    async with world() as here:
        here.server.answer["/mcp"] = lambda one: one.respond(401, www_authenticate="Bearer")
        for _ in range(2):
            with pytest.raises(AuthRequiredError):
                await connect_mcp(here.target())
        assert len(here.person.asked) == 1


async def test_a_store_that_is_held_for_too_long_says_so() -> None:
    store = MemoryTokenStore()
    key = TokenKey(issuer="https://a.example", resource="https://b.example")
    async with store.locked(key, seconds=1):
        with pytest.raises(StoreError, match="held by another task"):
            async with store.locked(key, seconds=0):
                raise AssertionError("two hold it")
    async with store.locked(key, seconds=0):
        pass


async def test_a_lookup_that_fails_is_an_error_that_may_be_tried_again() -> None:
    async with world() as here:
        here.server.metadata["authorization_servers"] = ["http://127.0.0.1:9"]
        with pytest.raises(ConnectError, match=r"signing in.* failed: "):
            await signed_in(here)


@pytest.mark.slow
async def test_a_token_that_ends_soon_is_renewed_before_a_request_is_refused() -> None:
    async with world() as here:
        here.host.seconds = 1
        async with connected(here.target()) as connection:
            with anyio.fail_after(30):
                while not here.host.forms("refresh_token"):
                    assert (await connection.call_tool("t")).text == "done"
                    await anyio.sleep(0.05)
        assert len(here.person.asked) == 1
        assert here.server.tokens().count("") == 1
