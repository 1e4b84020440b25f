"""Tasks of servers that are called as each caller: begun, asked about and cancelled by that caller alone."""

from __future__ import annotations

import anyio
import pytest

from tests.gateway.caller_world import USERS, key_of, world
from tests.gateway.plain_callers import plain
from tests.gateway.relayed import MODERN, Json
from tests.gateway.test_private_tasks import HANDSHAKE, Voice
from toolweave import CallContext, McpServer, create_mcp_server

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

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
    with anyio.fail_after(60):
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
