"""Handlers keep values of a caller between its calls, in any store, and no other caller sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.serve.carriers import ERAS, connected
from tests.serve.serving import served_http
from toolweave import CallContext, ToolError, connect_mcp, create_mcp_server, tool
from toolweave.serve import BearerAuth, McpServer, SessionRules
from toolweave.serve._sessions import ClientSessions, Sessions
from toolweave.serve.request import Client
from toolweave.state import Document, MemoryStore, SqliteStore, Store

FIRST = "the-first-of-all-tokens"
SECOND = "another-of-these-tokens"


@tool
async def put(item: str, ctx: CallContext) -> list[str]:
    """Put something into the basket."""
    basket = [*await ctx.session.get("basket", []), item]
    await ctx.session.set("basket", basket)
    return basket


@tool
async def clear(ctx: CallContext) -> bool:
    """Empty the basket."""
    return await ctx.session.delete("basket")


@tool
async def note(text: str, ctx: CallContext, number: str = "7") -> str:
    """Add to a note under a number, and return all of it."""
    kept = ctx.session_under(number)
    await kept.set("text", await kept.get("text", "") + text)
    return await kept.get("text")


@tool
async def pin(name: str, ctx: CallContext) -> None:
    """Keep a value under a name of its own."""
    await ctx.session.set(name, True)


@tool
async def pinned(names: list[str], ctx: CallContext) -> list[str]:
    """Return the names under which a value is kept."""
    return [name for name in names if await ctx.session.get(name, False)]


def shop(store: Store | None = None, **options: Any) -> McpServer:
    return create_mcp_server("shop", tools=[put, clear, note], store=store, **options)


def as_caller(url: str, era: str, token: str) -> Any:
    return connect_mcp({"url": url, "protocol": era, "headers": {"Authorization": f"Bearer {token}"}})


@pytest.mark.parametrize("era", ERAS)
async def test_values_are_kept_between_the_calls_of_one_caller(era: str) -> None:
    auth = BearerAuth(tokens={FIRST: "one", SECOND: "other"})
    async with served_http(shop(), auth=auth) as url, as_caller(url, era, FIRST) as one:
        assert (await one.call_tool("put", {"item": "milk"})).text == '["milk"]'
        async with as_caller(url, era, SECOND) as other:
            assert (await other.call_tool("put", {"item": "tea"})).text == '["tea"]'
            assert (await other.call_tool("clear")).text == "true"
            assert (await other.call_tool("clear")).text == "false"
            assert (await one.call_tool("note", {"text": "mine"})).text == "mine"
            assert (await other.call_tool("note", {"text": "yours"})).text == "yours"
        assert (await one.call_tool("put", {"item": "tea"})).text == '["milk", "tea"]'
        assert (await one.call_tool("note", {"text": "!"})).text == "mine!"


async def test_a_conversation_has_a_session_of_its_own() -> None:
    server = shop()
    async with connected(server, era=ERAS[0]) as one, connected(server, era=ERAS[0]) as other:
        assert (await one.call_tool("put", {"item": "milk"})).text == '["milk"]'
        assert (await other.call_tool("put", {"item": "tea"})).text == '["tea"]'


async def test_without_conversation_and_principal_a_key_that_the_caller_passes_on_is_left() -> None:
    async with connected(shop()) as client:
        refused = await client.call_tool("put", {"item": "milk"})
        assert refused.is_error
        assert "ctx.session_under(key)" in refused.text
        assert (await client.call_tool("note", {"text": "a", "number": "x81"})).text == "a"
        assert (await client.call_tool("note", {"text": "b", "number": "x81"})).text == "ab"
        assert (await client.call_tool("note", {"text": "c", "number": "x82"})).text == "c"


async def test_replicas_that_share_a_store_share_the_sessions(tmp_path: Path) -> None:
    auth = BearerAuth(tokens={FIRST: "one"})
    for expected in ('["milk"]', '["milk", "milk"]'):
        server = shop(SqliteStore(tmp_path / "sessions.db"))
        async with served_http(server, auth=auth) as url, as_caller(url, ERAS[1], FIRST) as client:
            assert (await client.call_tool("put", {"item": "milk"})).text == expected


async def test_a_session_that_grows_too_large_is_refused_and_stays_as_it_was() -> None:
    async with connected(shop(sessions=SessionRules(max_bytes=200)), era=ERAS[0]) as client:
        assert (await client.call_tool("put", {"item": "milk"})).text == '["milk"]'
        refused = await client.call_tool("put", {"item": "x" * 200})
        assert refused.is_error
        assert "at most 200 bytes" in refused.text
        assert (await client.call_tool("put", {"item": "tea"})).text == '["milk", "tea"]'
    with pytest.raises(ValueError, match="more than 0"):
        SessionRules(ttl_seconds=0)


async def test_an_unused_session_expires_and_a_used_one_is_kept_on() -> None:
    now = [1000.0]
    sessions = Sessions("shop", MemoryStore(clock=lambda: now[0]), SessionRules(ttl_seconds=10), clock=lambda: now[0])
    own = ClientSessions(sessions, Client(version=ERAS[0], conversation="a")).own()
    await own.set("basket", ["milk"])
    for _ in range(4):
        now[0] += 7
        assert await own.get("basket") == ["milk"]
    now[0] += 11
    assert await own.get("basket", "none") == "none"


class MeetingStore(MemoryStore):
    """A store two of whose reads wait for each other, so that two requests find a session as neither has changed it.

    Attributes:
        awaited: The reads that have yet to come until all that wait go on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.awaited = 0
        self._met = anyio.Event()

    def meet(self) -> None:
        self.awaited = 2
        self._met = anyio.Event()

    async def get(self, collection: str, key: str) -> Document | None:
        found = await super().get(collection, key)
        if self.awaited:
            self.awaited -= 1
            if self.awaited == 0:
                self._met.set()
            await self._met.wait()
        return found


async def test_changes_of_one_session_at_once_lose_nothing() -> None:
    store = MeetingStore()
    names = [f"value {number}" for number in range(6)]
    async with connected(create_mcp_server("shop", tools=[pin, pinned], store=store), era=ERAS[0]) as client:
        for pair in (names[:2], names[2:4], names[4:]):  # the first two make the session, the others change it
            store.meet()
            async with anyio.create_task_group() as tasks:
                for name in pair:
                    tasks.start_soon(client.call_tool, "pin", {"name": name})
            assert store.awaited == 0
        assert (await client.call_tool("pinned", {"names": names})).structured_content == {"result": names}


async def test_a_session_that_always_changes_meanwhile_is_given_up() -> None:
    class Contended(MemoryStore):
        async def put(self, *args: Any, **more: Any) -> int | None:
            return None

    own = ClientSessions(Sessions("shop", Contended()), Client(version=ERAS[0], conversation="a")).own()
    with pytest.raises(ToolError, match="too many calls at once"):
        await own.set("basket", [])
    with pytest.raises(ToolError, match="keeps no sessions"):
        await ClientSessions(None, Client(version=ERAS[0], conversation="a")).own().get("basket")


async def test_a_tool_that_runs_as_a_task_has_the_session_of_its_caller() -> None:
    server = create_mcp_server("shop", tools=[put], tasks={"put": "optional"})
    async with connected(server, era=ERAS[0]) as client:
        for expected in ('["milk"]', '["milk", "milk"]'):
            assert (await client.call_tool("put", {"item": "milk"})).text == expected
