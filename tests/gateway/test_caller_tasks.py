"""Tasks of servers that are called as each caller: begun, asked about and cancelled by that caller alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from tests.connect.scripted import listening
from tests.gateway.caller_world import USERS, CallerWorld, key_of, principal_of, upstream_at, world
from tests.gateway.plain_callers import plain
from tests.gateway.relayed import MODERN, Json
from tests.gateway.test_private_tasks import HANDSHAKE, Voice
from tests.serve.serving import served_http
from toolweave import CallContext, McpServer, create_mcp_server
from toolweave.gateway import Gateway, create_gateway
from toolweave.serve import ApiKey, ApiKeyAuth

TEST_SECONDS = 60

pytestmark = pytest.mark.slow

ERAS = pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
UPSTREAMS = pytest.mark.parametrize("upstream", ["legacy", "auto"])
ABLE: Json = {"elicitation": {}}


class Mail:
    """A server with a tool that becomes a task, and tells whose it is.

    Attributes:
        server: The server.
        go: Lets the tool end.
    """

    def __init__(self) -> None:
        self.go = anyio.Event()
        self.server: McpServer = create_mcp_server(name="mail", version="1", tasks={"long": "required"})
        self.server.tool(self.long)

    async def long(self, ctx: CallContext) -> str:
        await self.go.wait()
        return f"of {ctx.principal}"


@ERAS
@UPSTREAMS
async def test_a_tool_of_a_server_that_is_called_as_its_caller_is_called_as_a_task(era: str, upstream: str) -> None:
    mail = Mail()
    async with world(users=USERS, upstream=mail.server, settings={"protocol": upstream}) as made:
        await made.grant("ann")
        await made.grant("bob")
        async with plain(made.url, era, token=key_of("ann"), **ABLE) as client:
            ann = Voice(client)
            name = await ann.begun("mail_long")
            assert (await ann.ask("tasks/get", taskId=name))["status"] == "working"
        async with (
            plain(made.url, era, token=key_of("ann"), **ABLE) as again,
            plain(made.url, era, token=key_of("bob"), **ABLE) as other,
        ):
            ann, bob = Voice(again), Voice(other)
            refused = [(await bob.answer(one, taskId=name))["error"] for one in ("tasks/get", "tasks/cancel")]
            second = await ann.begun("mail_long")
            await ann.ask("tasks/cancel", taskId=second)
            cancelled = await ann.ask("tasks/get", taskId=second)
            mail.go.set()
            text = await ann.outcome(name)

    assert [error["code"] for error in refused] == [-32602, -32602]
    assert cancelled["status"] == "cancelled"
    assert "ann" in text


@ERAS
async def test_tasks_are_declared_where_a_server_that_is_called_as_its_caller_may_have_them(era: str) -> None:
    async with world(upstream=Mail().server) as made:
        assert made.manager is not None
        found = made.manager.server.endpoint.capabilities(modern=era == MODERN)

    assert "io.modelcontextprotocol/tasks" in found["extensions"] if era == MODERN else "tasks" in found


@asynccontextmanager
async def quick(mail: Mail, idle_seconds: float) -> AsyncGenerator[tuple[CallerWorld, Gateway]]:
    """Serve a gateway before a server that is called as each caller, which keeps no caller's servers for long."""
    made = CallerWorld()
    async with listening(made.host.handle) as (url, _):
        made.host.url = url.removesuffix("/mcp")
        async with upstream_at(mail.server, made) as made.upstream:
            keys = ApiKeyAuth([ApiKey(name=user, key=key_of(user)) for user in USERS])
            gateway = create_gateway(
                {"mail": made.entry()}, auth=keys, token_store=made.store, idle_seconds=idle_seconds
            )
            async with served_http(gateway) as served:
                made.base = served.removesuffix("/mcp")
                yield made, gateway


async def test_the_servers_of_a_caller_without_requests_are_closed_after_a_while() -> None:
    async with quick(Mail(), 0.3) as (made, gateway):
        for user in USERS:
            await made.grant(user)
            async with plain(made.url, MODERN, token=key_of(user), **ABLE) as client:
                await Voice(client).ask("tools/list")
        while len(gateway.callers):
            await anyio.sleep(0.02)


async def test_the_servers_of_a_caller_are_not_closed_while_a_task_runs_there() -> None:
    mail = Mail()
    async with quick(mail, 0.3) as (made, gateway):
        for user in ("ann", "bob"):
            await made.grant(user)
        async with plain(made.url, MODERN, token=key_of("ann"), **ABLE) as client:
            name = await Voice(client).begun("mail_long")
        begun_at = gateway.callers.hubs.hubs_of(principal_of("ann"))
        async with plain(made.url, MODERN, token=key_of("bob"), **ABLE) as client:
            await Voice(client).ask("tools/list")
        while len(gateway.callers) > 1:  # that of the other caller, which came later, ends first
            await anyio.sleep(0.02)
        mail.go.set()
        async with plain(made.url, MODERN, token=key_of("ann"), **ABLE) as client:
            assert "ann" in await Voice(client).outcome(name)
        assert gateway.callers.hubs.hubs_of(principal_of("ann")) == begun_at
        assert len(begun_at) == 1
