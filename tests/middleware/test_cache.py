"""A cache of results: only as long as they last, only for whom they were made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

from tests.middleware.company import Json, caller, token_of
from tests.serve.carriers import EACH_CARRIER, connected
from tests.serve.lines import Peer
from toolweave import tool
from toolweave.middleware import AccessRule, AccessRules, OfferSelection, ResponseCache
from toolweave.serve import McpServer, Middleware, create_mcp_server, resource
from toolweave.tools import CallContext

ADA, BOB = token_of("ada", "read"), token_of("bob", "read")


def only_look(kind: Any, name: str, scopes: Any = (), server: str | None = None, /) -> bool:
    return name == "look"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Counting:
    """A server that counts what reaches it."""

    def __init__(self, *middleware: Middleware, **options: Any) -> None:
        self.calls = 0

        @tool(annotations={"readOnlyHint": True})
        def look(text: str = "") -> str:
            """Look."""
            self.calls += 1
            return f"{text} {self.calls}"

        @tool(annotations={"readOnlyHint": True})
        async def who(ctx: CallContext) -> str:
            """Say who asks."""
            self.calls += 1
            return f"{ctx.principal} {self.calls}"

        @tool(annotations={"readOnlyHint": True})
        def fail() -> str:
            """Fail."""
            self.calls += 1
            raise ValueError("no")

        @tool
        def change() -> str:
            """Change."""
            self.calls += 1
            return str(self.calls)

        @resource("notes://one")
        def one() -> str:
            """Read it."""
            self.calls += 1
            return str(self.calls)

        async def note(request: Any, call_next: Any) -> Json:
            self.calls += request.method == "tools/list"
            return await call_next(request)

        self.server: McpServer = create_mcp_server(
            "counts", tools=[look, who, fail, change], resources=[one], middleware=[*middleware, note], **options
        )

    async def ask(self, peer: Peer, method: str, **params: Any) -> Json:
        return await self.server.endpoint.answer(peer.request(method, **params))

    async def call(self, peer: Peer, name: str, **arguments: Any) -> str:
        result = await peer.call(self.server, name, arguments)
        return result["content"][0]["text"]


async def test_lists_and_reads_are_kept_for_their_time() -> None:
    clock = Clock()
    counting = Counting(ResponseCache(clock=clock), ttl_ms=2000)

    first = await counting.ask(caller(ADA), "resources/read", uri="notes://one")
    clock.now += 0.5
    second = await counting.ask(caller(ADA), "resources/read", uri="notes://one")
    clock.now += 1.5
    third = await counting.ask(caller(ADA), "resources/read", uri="notes://one")
    listed = [await counting.ask(caller(ADA), "tools/list") for _ in range(3)]

    assert [one["contents"][0]["text"] for one in (first, second, third)] == ["1", "1", "2"]
    assert (first["ttlMs"], second["ttlMs"]) == (2000, 1500)
    assert listed[0]["tools"] == listed[2]["tools"]
    assert counting.calls == 3


async def test_what_gives_no_time_is_not_kept() -> None:
    counting = Counting(ResponseCache())
    for _ in range(2):
        await counting.ask(caller(ADA), "tools/list")
        await counting.ask(caller(ADA), "resources/read", uri="notes://one")
        await counting.call(caller(ADA), "look")

    assert counting.calls == 6


async def test_private_results_are_the_callers_own_and_public_ones_everybodys() -> None:
    private = Counting(ResponseCache(), ttl_ms=60_000)
    for token in (ADA, BOB, ADA, BOB):
        await private.ask(caller(token), "tools/list")
    public = Counting(ResponseCache(), ttl_ms=60_000, cache_scope="public")
    for token in (ADA, BOB, None, ADA):
        await public.ask(caller(token), "tools/list")

    assert private.calls == 2
    assert public.calls == 1


async def test_a_caller_who_cannot_be_told_from_others_gets_nothing_private() -> None:
    counting = Counting(ResponseCache(tools_seconds=60), ttl_ms=60_000)
    for _ in range(2):
        await counting.ask(caller(), "tools/list")
        await counting.call(caller(), "who")
    assert counting.calls == 4

    for _ in range(2):
        await counting.call(caller(conversation="one"), "who")
    assert counting.calls == 5


async def test_another_token_of_a_principal_with_other_scopes_is_another_caller() -> None:
    counting = Counting(ResponseCache(tools_seconds=60))
    for token in (token_of("ada", "read"), token_of("ada", "write"), token_of("ada", "read", team="x")):
        await counting.call(caller(token), "look")
    await counting.call(caller(token_of("ada", "read", exp=1)), "look")  # the same but for its time

    assert counting.calls == 3


async def test_rules_on_either_side_keep_results_apart() -> None:
    only_ada = AccessRules(rules=[AccessRule(effect="allow", subjects=("ada",))])
    for middleware in ((ResponseCache(), only_ada), (only_ada, ResponseCache())):
        counting = Counting(*middleware, ttl_ms=60_000, cache_scope="public")
        seen = await counting.ask(caller(ADA), "tools/list")
        hidden = await counting.ask(caller(BOB), "tools/list")
        await counting.ask(caller(ADA), "resources/read", uri="notes://one")
        with pytest.raises(Exception, match="not found"):
            await counting.ask(caller(BOB), "resources/read", uri="notes://one")

        assert len(seen["tools"]) == 4
        assert hidden["tools"] == []


async def test_tools_that_only_read_are_kept_if_asked_to() -> None:
    counting = Counting(ResponseCache(tools_seconds=60))

    assert await counting.call(caller(ADA), "look", text="a") == "a 1"
    assert await counting.call(caller(ADA), "look", text="a") == "a 1"
    assert await counting.call(caller(ADA), "look", text="b") == "b 2"
    assert await counting.call(caller(ADA), "change") == "3"
    assert await counting.call(caller(ADA), "change") == "4"
    await counting.call(caller(ADA), "fail")
    await counting.call(caller(ADA), "fail")
    assert counting.calls == 6


async def test_only_selected_tools_are_kept() -> None:
    counting = Counting(ResponseCache(tools_seconds=60, tools=[OfferSelection(names=["who"])]))
    for _ in range(2):
        await counting.call(caller(ADA), "look")
        await counting.call(caller(ADA), "who")

    assert counting.calls == 3


async def test_meta_of_a_request_and_rounds_pass_the_cache_by() -> None:
    counting = Counting(ResponseCache(tools_seconds=60))
    peer = caller(ADA)
    await counting.ask(peer, "tools/call", name="look", arguments={}, _meta={"acme/tenant": "one"})
    await counting.ask(peer, "tools/call", name="look", arguments={}, _meta={"acme/tenant": "two"})
    await counting.ask(peer, "tools/call", name="look", arguments={}, inputResponses={})
    assert counting.calls == 3

    await counting.ask(peer, "tools/call", name="look", arguments={}, _meta={"traceparent": "00-1"})
    await counting.ask(peer, "tools/call", name="look", arguments={}, _meta={"traceparent": "00-2"})
    assert counting.calls == 4


async def test_revisions_and_abilities_of_clients_are_kept_apart() -> None:
    counting = Counting(ResponseCache(tools_seconds=60))
    old = caller(ADA, version="2025-11-25")
    await counting.call(old, "look")
    await counting.call(caller(ADA), "look")
    await counting.call(caller(ADA, capabilities={}), "look")
    await counting.call(old, "look")

    assert counting.calls == 3


async def test_nobody_changes_what_another_gets() -> None:
    counting = Counting(ResponseCache(tools_seconds=60))
    for _ in range(2):
        result = await caller(ADA).call(counting.server, "look")
        assert result["content"][0]["text"] == " 1"
        result["content"].clear()
        result["extra"] = 1


async def test_the_least_recently_used_are_forgotten_first() -> None:
    counting = Counting(ResponseCache(tools_seconds=60, max_bytes=1_200))
    for text in "abcdefghijklmnopqrstuvwxyz" * 2:
        await counting.call(caller(ADA), "look", text=text)
    assert counting.calls == 52

    for _ in range(3):
        await counting.call(caller(ADA), "look", text="z")
    large = Counting(ResponseCache(tools_seconds=60, max_bytes=4_000))
    for _ in range(2):
        await large.call(caller(ADA), "look", text="x" * 3_000)

    assert counting.calls == 52
    assert large.calls == 2


@EACH_CARRIER
async def test_a_cached_call_is_answered_on_every_carrier(carrier: str, era: str) -> None:
    counting = Counting(ResponseCache(tools_seconds=60))
    async with connected(counting.server, carrier, era) as connection:
        first = await connection.call_tool("look", {"text": "a"})
        second = await connection.call_tool("look", {"text": "a"})

    told_apart = carrier == "inprocess" or era == "2025-11-25"
    assert (first.text == second.text) is told_apart


async def test_concurrent_requests_are_all_answered() -> None:
    counting = Counting(ResponseCache(tools_seconds=60))
    texts: list[str] = []

    async def one() -> None:
        texts.append(await counting.call(caller(ADA), "look"))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(one)

    assert len(texts) == 20


async def test_a_filter_before_the_cache_makes_nothing_public() -> None:
    counting = Counting(ResponseCache(), ttl_ms=60_000, cache_scope="public")
    peer = caller(ADA)
    peer.client = replace(peer.client, may=only_look)

    few = await counting.ask(peer, "tools/list")
    all_of_them = await counting.ask(caller(BOB), "tools/list")

    assert [one["name"] for one in few["tools"]] == ["look"]
    assert len(all_of_them["tools"]) == 4


async def test_what_is_public_reaches_nobody_around_a_filter() -> None:
    counting = Counting(ResponseCache(), ttl_ms=60_000, cache_scope="public")
    await counting.ask(caller(BOB), "tools/list")
    peer = caller(ADA)
    peer.client = replace(peer.client, may=only_look)

    few = await counting.ask(peer, "tools/list")

    assert [one["name"] for one in few["tools"]] == ["look"]


async def test_one_cache_of_two_servers_mixes_nothing_up() -> None:
    cache = ResponseCache(tools_seconds=60)
    one, other = Counting(cache), Counting(cache)
    await one.call(caller(ADA), "look")
    await one.call(caller(ADA), "look")

    assert await other.call(caller(ADA), "look") == " 1"
    assert (one.calls, other.calls) == (1, 1)
