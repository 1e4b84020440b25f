"""Sign-ins of callers whose link is of one replica, while the browser and the caller come to another one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest

from tests.gateway.caller_world import USERS, CallerWorld, at_the_pages, code_on, key_of, link_in, names, world
from tests.gateway.scale.replicas import KEYS
from tests.serve.company import Browser
from tests.serve.serving import served_http
from toolweave import connect_mcp
from toolweave.gateway import Gateway, Replicas, create_gateway
from toolweave.serve import ApiKey, ApiKeyAuth
from toolweave.state import MemoryStore

pytestmark = pytest.mark.slow

BOUND = 60


@asynccontextmanager
async def pair() -> AsyncGenerator[tuple[CallerWorld, str, str]]:
    """Serve two replicas before one upstream."""
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(world())
        store, urls = MemoryStore(), list[str]()
        keys = ApiKeyAuth([ApiKey(name=user, key=key_of(user)) for user in USERS])
        for _ in range(2):
            gateway: Gateway = create_gateway(
                {"mail": made.entry()},
                auth=keys,
                token_store=made.store,
                state_keys=KEYS,
                replicas=Replicas(store, KEYS),
            )
            urls.append(await stack.enter_async_context(served_http(gateway)))
        yield made, urls[0], urls[1]


def elsewhere(link: str, there: str) -> str:
    """Return a link as it is at another replica, which in truth has the same address."""
    return there.removesuffix("/mcp") + link[link.index("/auth/") :]


async def test_the_pages_and_the_code_may_reach_another_replica_than_the_link_is_of() -> None:
    with anyio.fail_after(BOUND):
        async with pair() as (made, here, there):
            async with connect_mcp({"url": here, "auth": key_of("ann")}) as caller:
                link = link_in((await caller.call_tool("mail_sign_in")).text)
            page = await at_the_pages(link, Browser(), lambda url: elsewhere(url, there))
            made.signed_in_as("ann")
            async with connect_mcp({"url": there, "auth": key_of("bob")}) as caller:
                assert (await caller.call_tool("mail_sign_in", {"code": code_on(page)})).is_error
            async with connect_mcp({"url": there, "auth": key_of("ann")}) as caller:
                done = await caller.call_tool("mail_sign_in", {"code": code_on(page)})
                assert not done.is_error, done.text
                assert (await caller.call_tool("mail_whoami")).text == "ann"
            async with connect_mcp({"url": here, "auth": key_of("ann")}) as caller:
                assert await names(caller) == ["mail_whoami"]


async def test_a_link_of_a_replica_that_is_gone_is_a_used_one() -> None:
    with anyio.fail_after(BOUND):
        async with pair() as (_, _here, there):
            origin = there.removesuffix("/mcp")
            answer = await Browser().send(f"{origin}/auth/sign-in/0123456789abcdef.made-up")
            assert answer.status == 404
            assert b"was used, or is too old" in answer.body
