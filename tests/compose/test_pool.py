"""Connections by identity: users with the same settings share one, users with others never do."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from tests.hub.fleet import BOUND, ToolServer, absent, echo
from tests.serve.carriers import EACH_ERA
from tests.serve.serving import served_http
from toolweave import (
    Agent,
    CallContext,
    ConfigError,
    ConnectError,
    ConnectionClosedError,
    McpPool,
    McpTools,
    ToolError,
    connect_mcp,
    connect_mcp_servers,
    create_mcp_server,
    tool,
)
from toolweave.connect import ConnectionState
from toolweave.models import ScriptedModel, ToolMessage, tool_call
from toolweave.serve import BearerAuth

ADA, BOB = "ada-0123456789abcdef", "bob-0123456789abcdef"


@asynccontextmanager
async def whose_api() -> AsyncGenerator[str]:
    """Serve a tool over HTTP that tells whose token its call came with, and over which session; yields the URL."""

    @tool
    def whoami(ctx: CallContext) -> str:
        """Say who asks."""
        session = str(ctx.caller and ctx.caller.client_key).rpartition("|")[2]
        return f"{json.loads(ctx.principal or '[null]')[0]}|{session}"

    auth = BearerAuth(tokens={ADA: "ada", BOB: "bob"})
    async with served_http(create_mcp_server(name="api", version="1", tools=[whoami]), auth=auth) as url:
        yield url


async def asked(component: McpTools) -> str:
    """Return what the tool answers in a run that has the component for itself."""
    agent = Agent(ScriptedModel([tool_call("whoami"), "done"]))
    answered = (await agent.send("who am I?", tools=component)).messages[2]
    assert isinstance(answered, ToolMessage)
    return answered.outcomes[0].result.text


@pytest.mark.slow
@pytest.mark.requirement("R21", "R27", "R73")
@EACH_ERA
async def test_the_runs_of_one_user_share_a_connection_and_those_of_two_users_never_do(era: str) -> None:
    with anyio.fail_after(BOUND):
        async with whose_api() as url, McpPool() as pool:
            config = {"url": url, "protocol": era}

            def tools(token: str) -> McpTools:
                return McpTools("api", config, client=pool, runtime_config={"auth": token})

            said: dict[str, list[str]] = {ADA: [], BOB: []}

            async def ask(token: str) -> None:
                for _ in range(3):
                    said[token].append(await asked(tools(token)))

            async with anyio.create_task_group() as tasks:
                for token in (ADA, BOB, ADA, BOB):
                    tasks.start_soon(ask, token)

            assert len(pool) == 2
            whose = {token: {text.split("|")[0] for text in texts} for token, texts in said.items()}
            assert whose == {ADA: {"ada"}, BOB: {"bob"}}
            sessions = {token: {text.split("|")[1] for text in texts} for token, texts in said.items()}
            assert [len(one) for one in sessions.values()] == [1, 1]  # no handshake for every run
            if era == "2025-11-25":
                assert sessions[ADA] != sessions[BOB]


@pytest.mark.requirement("R73", "R27")
@EACH_ERA
async def test_an_update_gives_a_mounted_component_to_another_user(era: str) -> None:
    with anyio.fail_after(BOUND):
        async with whose_api() as url, McpPool() as pool:
            config = {"url": url, "protocol": era}
            shared = McpTools("api", config, client=pool, runtime_config={"auth": ADA})
            alone = McpTools("api", config, runtime_config={"auth": ADA})
            for component in (shared, alone):
                async with component:
                    whoami = component.tools["whoami"]
                    first = (await whoami.execute()).text
                    await component.update({"auth": BOB})
                    second = (await whoami.execute()).text
                assert (first.split("|")[0], second.split("|")[0]) == ("ada", "bob")


@pytest.mark.requirement("R21")
async def test_a_client_that_is_connected_as_somebody_else_is_refused_and_not_used() -> None:
    with anyio.fail_after(BOUND):
        async with whose_api() as url:
            ada = {"url": url, "auth": ADA}
            async with connect_mcp_servers({"api": ada}, on_error="raise") as hub, connect_mcp(ada) as connection:
                for client in (hub, connection):
                    with pytest.raises(ConfigError, match="other settings; give a McpPool"):
                        async with McpTools("api", {"url": url}, client=client, runtime_config={"auth": BOB}):
                            raise AssertionError
                    async with McpTools("api", {"url": url}, client=client, runtime_config={"auth": ADA}) as same:
                        assert (await asked(same)).startswith("ada|")


async def test_credentials_from_a_callable_are_an_identity_of_their_own() -> None:
    def credentials(token: str) -> Callable[[], Awaitable[str]]:
        async def give() -> str:
            return token

        return give

    with anyio.fail_after(BOUND):
        async with whose_api() as url, McpPool() as pool:
            ada, bob = credentials(ADA), credentials(BOB)
            said = [
                await asked(McpTools("api", {"url": url}, client=pool, runtime_config={"auth": give}))
                for give in (ada, bob, ada)
            ]
            assert [text.split("|")[0] for text in said] == ["ada", "bob", "ada"]
            assert len(pool) == 2


async def test_filters_and_prefixes_are_no_identity() -> None:
    server = ToolServer("files", ["read", "write"])
    with anyio.fail_after(BOUND):
        async with McpPool() as pool:
            one = McpTools("files", server.config(include=["read"]), client=pool)
            other = McpTools("files", server.config(tool_prefix="fs_"), client=pool, exclude=["read"])
            async with one, other:
                assert (one.tools.names, other.tools.names) == (("read",), ("fs_write",))
                assert len(pool) == 1


async def test_only_so_many_idle_connections_are_kept_and_the_last_used_ones() -> None:
    servers = [ToolServer(name, ["read"]) for name in "abc"]
    with anyio.fail_after(BOUND):
        async with McpPool(max_idle=1) as pool:
            a, b, c = (McpTools(server.name, server.config(), client=pool) for server in servers)
            async with a, b, c:
                assert len(pool) == 3
                assert repr(pool) == "<McpPool: 3 connections, 3 in use>"
            assert repr(pool) == "<McpPool: 1 connections, 0 in use>"
            async with a:
                assert (await a.tools["read"].execute()).text == "a|read"  # the last that was left; it is still there
                assert len(pool) == 1
            async with b:
                assert len(pool) == 2
            assert len(pool) == 1
    with pytest.raises(ValueError, match="max_idle"):
        McpPool(max_idle=-1)


async def test_a_connection_that_was_left_too_long_ago_is_closed_at_the_next_use_of_the_pool() -> None:
    old, new = (ToolServer(name, ["read"]) for name in ("old", "new"))
    with anyio.fail_after(BOUND):
        async with McpPool(idle_seconds=1.0) as pool:
            async with pool.lease(old.config()) as left:
                pass
            await anyio.sleep(1.1)
            assert len(pool) == 1
            async with pool.lease(new.config()):
                assert len(pool) == 2
            assert len(pool) == 1
            assert left.state is ConnectionState.CLOSED
            async with pool.lease(new.config()) as connection:
                assert (await connection.list_tools()).names == ("read",)


async def test_a_connection_that_never_came_up_is_not_kept_and_tried_anew() -> None:
    with anyio.fail_after(BOUND):
        async with McpPool() as pool:
            for _ in range(2):
                with pytest.raises(ConnectError):
                    async with McpTools("gone", absent(), client=pool):
                        raise AssertionError
            assert repr(pool) == "<McpPool: 0 connections, 0 in use>"


async def test_a_closed_pool_has_closed_everything_and_gives_nothing() -> None:
    pool = McpPool()
    with anyio.fail_after(BOUND):
        component = McpTools("echo", echo(), client=pool)
        async with component:
            await pool.close()
            assert (await component.tools["echo"].execute({"text": "hi"})).is_error
        assert len(pool) == 0
        with pytest.raises(ConnectionClosedError, match="pool"):
            async with component:
                raise AssertionError
        with pytest.raises(ConnectionClosedError, match="pool"):
            async with pool:
                raise AssertionError


async def test_a_user_who_gives_up_while_connecting_leaves_the_others_their_connection() -> None:
    with anyio.fail_after(BOUND):
        async with McpPool() as pool:
            component, other = (McpTools("echo", echo(), client=pool) for _ in range(2))

            async def give_up(scope: anyio.CancelScope) -> None:
                with scope:
                    async with component:
                        pass

            scope = anyio.CancelScope()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(give_up, scope)
                await anyio.lowlevel.checkpoint()
                tasks.start_soon(other.__aenter__)
                await anyio.lowlevel.checkpoint()
                scope.cancel()
            assert (await other.tools["echo"].execute({"text": "hi"})).text == "hi"
            await other.__aexit__(None, None, None)


async def test_a_leased_connection_keeps_the_filters_of_its_config() -> None:
    server = ToolServer("files", ["read", "write"])
    with anyio.fail_after(BOUND):
        async with McpPool() as pool, pool.lease(server.config(exclude=["write"])) as connection:
            assert (await connection.list_tools()).names == ("read",)
            with pytest.raises(ToolError, match="'exclude' names it"):
                await connection.call_tool("write")
