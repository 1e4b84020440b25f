"""Offers are enabled and disabled for everybody, and for one session; disabled ones are as if they were not there."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from tests.serve.carriers import EACH_CARRIER, EACH_ERA, ERAS, connected
from tests.serve.serving import served_http
from toolweave import CallContext, McpConnection, ToolError, connect_mcp, create_mcp_server, tool
from toolweave.errors import ProtocolError
from toolweave.serve import BearerAuth, McpServer, directory, prompt, resource


@tool
async def login(word: str, ctx: CallContext) -> str:
    """Unlock what administrators use."""
    if word != "sesame":
        raise ToolError("that is not the word")
    await ctx.enable(tags={"admin"})
    return "welcome"


@tool
async def logout(ctx: CallContext) -> str:
    """Lock it again."""
    await ctx.disable(tags={"admin"})
    await ctx.disable("echo", "notes://plain")
    return "bye"


@tool(tags={"admin"})
def drop_table(name: str) -> str:
    """Drop a table."""
    return f"dropped {name}"


@tool
def echo(text: str) -> str:
    """Say it again."""
    return text


@prompt(tags={"admin"})
def audit(topic: str) -> str:
    """Ask for an audit."""
    return f"Audit {topic}."


@resource("secrets://{name}", name="secret", tags={"admin"})
def secret(name: str) -> str:
    """A secret."""
    return f"the secret {name}"


@resource("notes://plain")
def plain() -> str:
    """A note."""
    return "plain"


def locked(**options: object) -> McpServer:
    server = create_mcp_server(
        "tables",
        tools=[login, logout, drop_table, echo],
        prompts=[audit],
        resources=[secret, plain],
        **options,  # pyright: ignore[reportArgumentType]
    )
    server.disable(tags={"admin"})
    return server


FIRST = "the-first-of-all-tokens"
SECOND = "another-of-these-tokens"
ALL = ("login", "logout", "drop_table", "echo")
OPEN = ("login", "logout", "echo")


async def names(client: McpConnection) -> tuple[str, ...]:
    """Return the tools that a client is offered now."""
    await client.refresh()
    return (await client.list_tools()).names


@asynccontextmanager
async def two_clients(
    server: McpServer, carrier: str, era: str
) -> AsyncGenerator[tuple[McpConnection, McpConnection], None]:
    """Connect twice; over HTTP as two principals, as that is the difference between callers of 2026-07-28."""
    if carrier == "inprocess":
        async with connected(server, era=era) as one, connected(server, era=era) as other:
            yield one, other
        return
    auth = BearerAuth(tokens={FIRST: "one", SECOND: "other"})
    async with served_http(server, auth=auth) as url:
        first, second = (
            connect_mcp({"url": url, "protocol": era, "headers": {"Authorization": f"Bearer {token}"}})
            for token in (FIRST, SECOND)
        )
        async with first as one, second as other:
            yield one, other


SESSIONS = pytest.mark.parametrize(("carrier", "era"), [("inprocess", ERAS[0]), *(("http", era) for era in ERAS)])
"""Where a caller has a session: a conversation, or a principal."""


@pytest.mark.requirement("R83")
@EACH_CARRIER
async def test_what_is_disabled_is_neither_listed_nor_found(carrier: str, era: str) -> None:
    server = locked()
    async with connected(server, carrier, era) as client:
        assert await names(client) == OPEN
        assert await client.list_prompts() == ()
        assert await client.list_resource_templates() == ()
        assert [one.uri for one in await client.list_resources()] == ["notes://plain"]
        with pytest.raises(ProtocolError, match="Unknown tool: drop_table"):
            await client.call_tool("drop_table", {"name": "users"})
        with pytest.raises(ProtocolError, match="Unknown prompt: audit"):
            await client.get_prompt("audit", {"topic": "x"})
        with pytest.raises(ProtocolError, match="Resource not found"):
            await client.read_resource("secrets://one")
        server.enable("drop_table", "audit", "secret")
        server.disable("ec*")
        assert await names(client) == ("login", "logout", "drop_table")
        assert (await client.call_tool("drop_table", {"name": "users"})).text == "dropped users"
        assert (await client.read_resource("secrets://one"))[0].text == "the secret one"
        assert (await client.get_prompt("audit", {"topic": "x"})).messages[0].content.render() == "Audit x."


@SESSIONS
async def test_a_login_unlocks_tools_for_its_own_session_and_tells_no_other(carrier: str, era: str) -> None:
    async with two_clients(locked(), carrier, era) as (one, other):
        changed = anyio.Event()
        notifications = list[object]()
        one.on("tools_changed", lambda change: changed.set())
        assert await names(one) == await names(other) == OPEN
        other.on("notification", notifications.append)
        assert (await one.call_tool("login", {"word": "please"})).is_error
        assert await names(one) == OPEN
        assert (await one.call_tool("login", {"word": "sesame"})).text == "welcome"
        await changed.wait()
        assert (await one.list_tools()).names == ALL
        assert (await one.call_tool("drop_table", {"name": "users"})).text == "dropped users"
        assert (await one.read_resource("secrets://one"))[0].text == "the secret one"
        assert await names(other) == OPEN
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await other.call_tool("drop_table", {"name": "users"})
        assert notifications == []
        assert (await one.call_tool("logout")).text == "bye"
        assert await names(one) == ("login", "logout")
        with pytest.raises(ProtocolError, match="Resource not found"):
            await one.read_resource("notes://plain")
        assert await names(other) == OPEN


async def test_a_caller_that_nothing_tells_from_others_has_no_session() -> None:
    async with connected(locked()) as client:
        refused = await client.call_tool("login", {"word": "sesame"})
        assert refused.is_error
        assert "this caller has no session" in refused.text
        assert await names(client) == OPEN


async def test_a_session_changes_nothing_where_the_server_said_nothing() -> None:
    server = create_mcp_server("tables", tools=[login, drop_table])
    async with connected(server, era=ERAS[0]) as client:
        refused = await client.call_tool("login", {"word": "sesame"})
        assert "server.disable" in refused.text
    with pytest.raises(ValueError, match="give names"):
        server.disable()
    with pytest.raises(ToolError, match="no session here"):
        await login("sesame", CallContext())


@EACH_ERA
async def test_what_is_hidden_completes_nothing_and_is_not_listened_to(era: str) -> None:
    server = locked()

    @server.completion(ref="prompt:audit", argument="topic")
    def topics(value: str) -> list[str]:
        return [value]

    async with connected(server, era=era) as client:
        ref = {"type": "ref/prompt", "name": "audit"}
        with pytest.raises(ProtocolError, match="Unknown prompt: audit"):
            await client.complete(ref, "topic", "a")
        server.enable(tags="admin")
        assert (await client.complete(ref, "topic", "a")).values == ("a",)


async def test_files_are_disabled_in_any_spelling(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("hidden")
    (tmp_path / "open.txt").write_text("shown")
    server = create_mcp_server("files", resources=[directory(tmp_path, uri="files://")])
    server.disable("files://secret*")
    async with connected(server) as client:
        assert [one.uri for one in await client.list_resources()] == ["files://open.txt"]
        assert (await client.read_resource("files://open.txt"))[0].text == "shown"
        for uri in ("files://secret.txt", "files://s%65cret.txt", "files://x/../secret.txt"):
            with pytest.raises(ProtocolError, match="Resource not found"):
                await client.read_resource(uri)
