"""Many users in one process: each call goes upstream with the sign-in of its own caller, and with no other."""

from __future__ import annotations

import json
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from tests.hub.fleet import BOUND
from tests.serve.carriers import EACH_ERA
from tests.serve.serving import served_http
from toolweave import Agent, CallContext, McpPool, connect_mcp, create_mcp_server, tool
from toolweave.config import ServerConfig, server_config
from toolweave.errors import (
    AuthRequiredError,
    ConfigError,
    ConnectionClosedError,
    RequestTimeoutError,
)
from toolweave.models import ScriptedModel, tool_call
from toolweave.oauth import MemoryTokenStore, OAuth, TokenKey, TokenRecord, resource_of
from toolweave.serve import BearerAuth, Identity

ISSUER = "https://as.example"


def token_of(user: str) -> str:
    return f"token-of-{user}-0123456789"


def verify(token: str) -> Identity | None:
    """The user of a token, as a server finds it."""
    user = token.removeprefix("token-of-").removesuffix("-0123456789")
    return Identity(client_id="app", subject=user, issuer=ISSUER) if token == token_of(user) else None


def user_of(ctx: CallContext) -> str:
    return json.loads(ctx.principal or "[null, null, null]")[2]


@tool
def whoami(ctx: CallContext) -> str:
    """Say whose token the call came with."""
    return user_of(ctx)


@asynccontextmanager
async def upstream() -> AsyncGenerator[str]:
    """Serve `whoami` to users with a token of their own; yields the URL."""
    server = create_mcp_server(name="upstream", version="1", tools=[whoami])
    async with served_http(server, auth=BearerAuth(verify)) as url:
        yield url


def front_tools(pool: McpPool, config: ServerConfig, store: MemoryTokenStore) -> list[Callable[..., object]]:
    """The tools of a server whose users have accounts at another one."""

    async def sign_in(ctx: CallContext) -> str:
        """Keep the caller's token for the server upstream."""
        assert ctx.principal is not None
        key = TokenKey(issuer=ISSUER, resource=resource_of(config.url), principal=ctx.principal)
        token = token_of(user_of(ctx))
        await store.save(TokenRecord(key=key, access_token=token, expires_at=time.time() + 3600, saved_at=time.time()))
        return ctx.principal

    async def ask_upstream(ctx: CallContext) -> str:
        """Ask the server upstream who calls it."""
        async with pool.lease(config, principal=ctx.principal) as api:
            return (await api.call_tool("whoami")).text

    return [sign_in, ask_upstream]


@asynccontextmanager
async def front(pool: McpPool, *, era: str = "2026-07-28") -> AsyncGenerator[str]:
    """Serve the tools of `front_tools` over HTTP, with the server behind them; yields the URL."""
    async with upstream() as url:
        store = MemoryTokenStore()
        config = server_config({"url": url, "auth": OAuth(store=store), "protocol": era}, name="upstream")
        server = create_mcp_server(name="front", version="1", tools=front_tools(pool, config, store))
        async with served_http(server, auth=BearerAuth(verify)) as own:
            yield own


async def crossed(url: str, users: int, calls: int) -> list[tuple[str, str]]:
    """Have each of many users call often, all at the same time; return the answers that were another's."""
    wrong: list[tuple[str, str]] = []

    async def use(user: str) -> None:
        async with connect_mcp({"url": url, "auth": token_of(user)}) as connection:
            await connection.call_tool("sign_in")
            chance = random.Random(user)
            for _ in range(calls):
                if chance.random() < 0.05:
                    await anyio.sleep(chance.random() / 100)
                answer = (await connection.call_tool("ask_upstream")).text
                if answer != user:
                    wrong.append((user, answer))

    async with anyio.create_task_group() as tasks:
        for number in range(users):
            tasks.start_soon(use, f"user-{number}")
    return wrong


@pytest.mark.slow
@pytest.mark.requirement("R73", "R27")
async def test_of_two_thousand_calls_of_fifty_users_none_is_made_as_another() -> None:
    with anyio.fail_after(240):
        async with McpPool(max_idle=25, max_connections=40) as pool, front(pool) as url:
            assert await crossed(url, users=50, calls=40) == []
            assert len(pool) <= 25


@EACH_ERA
async def test_two_users_of_one_server_have_a_connection_each_and_share_it_between_calls(era: str) -> None:
    with anyio.fail_after(BOUND):
        async with McpPool() as pool, front(pool, era=era) as url:
            assert await crossed(url, users=2, calls=3) == []
            assert len(pool) == 2


@pytest.mark.slow
async def test_a_caller_who_is_not_signed_in_upstream_is_not_served_with_the_sign_in_of_another() -> None:
    with anyio.fail_after(BOUND):
        async with McpPool() as pool, front(pool) as url:
            async with connect_mcp({"url": url, "auth": token_of("ann")}) as ann:
                await ann.call_tool("sign_in")
                assert (await ann.call_tool("ask_upstream")).text == "ann"
            async with connect_mcp({"url": url, "auth": token_of("bob")}) as bob:
                result = await bob.call_tool("ask_upstream")

    assert result.is_error
    assert "ann" not in result.text


@pytest.mark.slow
async def test_an_agent_asks_upstream_as_its_caller() -> None:
    with anyio.fail_after(BOUND):
        async with upstream() as url, McpPool() as pool:
            store = MemoryTokenStore()
            config = server_config({"url": url, "auth": OAuth(store=store)}, name="upstream")
            sign_in, ask_upstream = front_tools(pool, config, store)

            async def ask_an_agent(ctx: CallContext) -> str:
                """Have an agent ask the server upstream who calls it."""
                agent = Agent(ScriptedModel([tool_call("ask_upstream"), "done"]), tools=[ask_upstream])
                run = await agent.send("Who am I?", ctx=ctx)
                return run.messages[2].outcomes[0].result.text  # type: ignore[union-attr, attr-defined]

            server = create_mcp_server(name="front", version="1", tools=[sign_in, ask_an_agent])
            async with served_http(server, auth=BearerAuth(verify)) as own:
                for user in ("ann", "bob"):
                    async with connect_mcp({"url": own, "auth": token_of(user)}) as connection:
                        await connection.call_tool("sign_in")
                        assert (await connection.call_tool("ask_an_agent")).text == user


async def test_a_caller_without_an_identity_is_refused_and_not_given_the_servers_own() -> None:
    with anyio.fail_after(BOUND):
        async with upstream() as url, McpPool() as pool:
            config = server_config({"url": url, "auth": "oauth"}, name="upstream")
            with pytest.raises(AuthRequiredError, match="the caller has no identity to sign in with"):
                async with pool.lease(config, principal=None):
                    raise AssertionError
            assert len(pool) == 0


async def test_a_principal_means_nothing_to_settings_that_sign_in_to_nothing() -> None:
    config = server_config({"url": "http://127.0.0.1:1/mcp", "auth": "0123456789"}, name="upstream")
    async with McpPool() as pool:
        for given in ({"principal": "ann"}, {"scopes": ["read"]}):
            with pytest.raises(ConfigError, match="other credentials are the same for everybody"):
                async with pool.lease(config, **given):  # pyright: ignore[reportArgumentType]
                    raise AssertionError


async def test_other_scopes_are_another_connection() -> None:
    with anyio.fail_after(BOUND):
        async with upstream() as url, McpPool() as pool:
            store = MemoryTokenStore()
            key = TokenKey(issuer=ISSUER, resource=resource_of(url), principal="ann")
            scopes = ("read", "write")
            await store.save(TokenRecord(key=key, access_token=token_of("ann"), scopes=scopes, saved_at=1.0))
            config = server_config({"url": url, "auth": OAuth(store=store)}, name="upstream")
            async with (
                pool.lease(config, principal="ann", scopes=["read"]) as one,
                pool.lease(config, principal="ann", scopes=["write"]) as other,
                pool.lease(config, principal="ann", scopes=["read"]) as again,
            ):
                assert one is again
                assert one is not other
                assert (await other.call_tool("whoami")).text == "ann"


async def test_a_lease_beyond_the_bound_waits_for_another_to_be_returned() -> None:
    with anyio.fail_after(BOUND):
        async with upstream() as url, McpPool(max_connections=1) as pool:
            ann, bob = (
                server_config({"url": url, "auth": token_of(user), "timeout": {"connect": 20}}, name=user)
                for user in ("ann", "bob")
            )
            order: list[str] = []

            async def use_bob() -> None:
                async with pool.lease(bob) as api:
                    order.append((await api.call_tool("whoami")).text)

            async with anyio.create_task_group() as tasks, pool.lease(ann) as api, pool.lease(ann):
                tasks.start_soon(use_bob)
                await anyio.sleep(0.05)
                order.append((await api.call_tool("whoami")).text)
                assert len(pool) == 1
            assert order == ["ann", "bob"]
            assert len(pool) == 1


async def test_a_lease_that_finds_no_room_in_time_is_an_error_that_says_why() -> None:
    with anyio.fail_after(BOUND):
        async with upstream() as url, McpPool(max_connections=1) as pool:
            ann, bob = (
                server_config({"url": url, "auth": token_of(user), "timeout": {"connect": seconds}}, name=user)
                for user, seconds in (("ann", 20), ("bob", 0.05))
            )
            async with pool.lease(ann):
                with pytest.raises(RequestTimeoutError, match=r"all 1 connections of the pool were in use for 0\.05 s"):
                    async with pool.lease(bob):
                        raise AssertionError
    with pytest.raises(ValueError, match="max_connections is at least 1"):
        McpPool(max_connections=0)


async def test_who_waits_for_room_hears_that_the_pool_is_closed() -> None:
    with anyio.fail_after(BOUND):
        async with upstream() as url:
            pool = McpPool(max_connections=1)
            ann, bob = (server_config({"url": url, "auth": token_of(user)}, name=user) for user in ("ann", "bob"))
            refused = anyio.Event()

            async def wait() -> None:
                with pytest.raises(ConnectionClosedError, match="the pool is closed"):
                    async with pool.lease(bob):
                        raise AssertionError
                refused.set()

            async with anyio.create_task_group() as tasks, pool.lease(ann):
                tasks.start_soon(wait)
                await anyio.sleep(0.05)
                await pool.close()
                await refused.wait()


async def test_an_unused_connection_is_closed_when_the_pool_is_used_after_its_time() -> None:
    with anyio.fail_after(BOUND):
        async with upstream() as url, McpPool(idle_seconds=0.0) as pool:
            ann, bob = (server_config({"url": url, "auth": token_of(user)}, name=user) for user in ("ann", "bob"))
            async with pool.lease(ann):
                pass
            await anyio.sleep(0.01)
            async with pool.lease(bob):
                pass
            assert len(pool) <= 1


async def test_a_call_that_nobody_authorized_has_no_principal() -> None:
    @tool
    def is_known(ctx: CallContext) -> bool:
        """Say whether the caller is known."""
        return ctx.principal is not None

    server = create_mcp_server(name="here", version="1", tools=[is_known])
    with anyio.fail_after(BOUND):
        async with served_http(server) as url, connect_mcp(url) as connection:
            assert (await connection.call_tool("is_known")).text == "false"
        async with (
            served_http(server, auth=BearerAuth(verify)) as url,
            connect_mcp({"url": url, "auth": token_of("ann")}) as connection,
        ):
            assert (await connection.call_tool("is_known")).text == "true"
    assert CallContext().principal is None
