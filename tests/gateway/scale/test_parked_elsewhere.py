"""Calls that wait in one replica while their caller's next request reaches another one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.gateway.scale.replicas import KEYS, STORES, Json, store_of
from tests.serve.talking import Talk, talking
from toolweave import CallContext, create_mcp_server
from toolweave.errors import RequestError, ToolError
from toolweave.gateway import Gateway, Replicas, create_gateway
from toolweave.serve import McpServer
from toolweave.state import MemoryStore, Store

FORM: Json = {"type": "object", "properties": {"name": {"type": "string"}}}


class Upstream:
    """A legacy server whose tools ask, and what became of their calls."""

    def __init__(self) -> None:
        self.server: McpServer = create_mcp_server(name="asking")
        self.server.speak("legacy")
        self.begun: list[str] = []
        self.cancelled = anyio.Event()
        self.release = anyio.Event()
        self.answered = anyio.Event()
        for name, hints in (("write", {}), ("look", {"readOnlyHint": True})):
            self.server.tool(name=name, annotations=hints)(self._asking(name))
        self.server.tool(name="fail")(self._failing)
        self.server.tool(name="slow")(self._slow)

    def _asking(self, name: str) -> Any:
        async def ask(ctx: CallContext) -> str:
            self.begun.append(name)
            first = await ctx.elicit("Who?", FORM)
            second = await ctx.elicit("And who else?", FORM)
            return f"{(first.content or {}).get('name')} and {(second.content or {}).get('name')}"

        return ask

    async def _failing(self, ctx: CallContext) -> str:
        await ctx.elicit("Who?", FORM)
        raise ToolError("not on Mondays")

    async def _slow(self, ctx: CallContext) -> str:
        await ctx.elicit("Who?", FORM)
        self.answered.set()
        try:
            await self.release.wait()
        except BaseException:
            self.cancelled.set()
            raise
        return "released"

    @property
    def source(self) -> Json:
        """The config of a gateway before it."""
        return {"up": {"server": self.server, "tool_prefix": ""}}


def replica(upstream: Upstream, store: Store | None) -> Gateway:
    shared = None if store is None else Replicas(store, KEYS)
    return create_gateway(upstream.source, state_keys=KEYS, replicas=shared)


@asynccontextmanager
async def pair(upstream: Upstream, *stores: Store | None) -> AsyncGenerator[tuple[Talk, Talk]]:
    """Speak to two replicas as one modern caller."""
    with anyio.fail_after(60):
        async with talking(replica(upstream, stores[0])) as here, talking(replica(upstream, stores[1])) as there:
            yield here, there


def call(name: str, asked: Json | None = None, answer: str = "") -> Json:
    """Return a call, or the same call with an answer to each of its questions."""
    params: Json = {"name": name, "arguments": {}}
    if asked is None:
        return params
    given = {"action": "accept", "content": {"name": answer}}
    responses = dict.fromkeys(asked["inputRequests"], given)
    return {**params, "requestState": asked["requestState"], "inputResponses": responses}


def text(result: Json) -> str:
    return result["content"][0]["text"]


@STORES
async def test_the_answers_of_a_caller_find_its_call_from_any_replica(
    kind: str, tmp_path: Path, redis_url: str
) -> None:
    upstream, one = Upstream(), store_of(kind, tmp_path, redis_url)
    other = one if kind == "memory" else store_of(kind, tmp_path, redis_url)
    async with pair(upstream, one, other) as (here, there):
        first = await here.ask("tools/call", call("write"))
        second = await there.ask("tools/call", call("write", first, "Ada"))
        done = await there.ask("tools/call", call("write", second, "Bob"))
        again = await here.ask("tools/call", call("write", second, "Bob"))

    assert [next(iter(one["inputRequests"].values()))["params"]["message"] for one in (first, second)] == [
        "Who?",
        "And who else?",
    ]
    assert (text(done), text(again)) == ("Ada and Bob", "Ada and Bob")
    assert upstream.begun == ["write"]


async def test_a_call_may_go_to_and_fro_between_replicas() -> None:
    upstream, store = Upstream(), MemoryStore()
    async with pair(upstream, store, store) as (here, there):
        first = await here.ask("tools/call", call("write"))
        second = await there.ask("tools/call", call("write", first, "Ada"))
        done = await here.ask("tools/call", call("write", second, "Bob"))

    assert text(done) == "Ada and Bob"


async def test_a_call_is_resumed_by_the_gateway_that_has_it_though_another_one_shares_its_replica() -> None:
    upstream, store = Upstream(), MemoryStore()
    shared = Replicas(store, KEYS)
    holder, other = (create_gateway(upstream.source, state_keys=KEYS, replicas=shared) for _ in range(2))
    with anyio.fail_after(60):
        async with talking(holder) as here, talking(other), talking(replica(upstream, store)) as there:
            first = await here.ask("tools/call", call("write"))
            second = await there.ask("tools/call", call("write", first, "Ada"))
            done = await there.ask("tools/call", call("write", second, "Bob"))

    assert text(done) == "Ada and Bob"


async def test_the_failure_of_a_call_elsewhere_is_told_as_its_own() -> None:
    upstream, store = Upstream(), MemoryStore()
    async with pair(upstream, store, store) as (here, there):
        first = await here.ask("tools/call", call("fail"))
        result = await there.ask("tools/call", call("fail", first, "Ada"))

    assert result["isError"] is True
    assert "not on Mondays" in text(result)


@pytest.mark.slow
async def test_a_caller_that_leaves_another_replica_ends_the_call() -> None:
    upstream, store = Upstream(), MemoryStore()
    async with pair(upstream, store, store) as (here, there):
        asked = await here.ask("tools/call", call("slow"))
        number = await there.send("tools/call", call("slow", asked, "Ada"))
        await upstream.answered.wait()
        await there.notify("notifications/cancelled", {"requestId": number})
        await upstream.cancelled.wait()


async def test_without_a_store_the_caller_is_told_where_its_call_waits() -> None:
    upstream = Upstream()
    async with pair(upstream, None, None) as (here, there):
        asked = await here.ask("tools/call", call("write"))
        with pytest.raises(RequestError, match="another process of the gateway") as refused:
            await there.ask("tools/call", call("write", asked, "Ada"))
        second = await here.ask("tools/call", call("write", asked, "Ada"))

    assert refused.value.code == -32603
    assert second["resultType"] == "input_required"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["write", "look"])
async def test_a_call_whose_replica_died_is_made_anew_only_if_that_does_no_harm(name: str) -> None:
    upstream, store = Upstream(), MemoryStore()
    with anyio.fail_after(60):
        async with talking(replica(upstream, store)) as there:
            async with talking(replica(upstream, store)) as here:
                asked = await here.ask("tools/call", call(name))
            if name == "look":
                anew = await there.ask("tools/call", call(name, asked, "Ada"))
                assert anew["resultType"] == "input_required"
            else:
                with pytest.raises(RequestError, match="the outcome is unknown") as refused:
                    await there.ask("tools/call", call(name, asked, "Ada"))
                assert refused.value.code == -32603

    assert upstream.begun == [name] * (2 if name == "look" else 1)


async def test_who_writes_into_the_store_without_the_keys_is_not_listened_to() -> None:
    upstream, store = Upstream(), MemoryStore()
    async with pair(upstream, store, store) as (here, there):
        asked = await here.ask("tools/call", call("write"))
        living = await store.scan("gateway-living")
        for one in living:
            await store.put("gateway-mail", f"{one.key}/0", {"kind": "parked"})
            await store.put("gateway-mail", f"{one.key}/1", "r1.00000000.AAAA")
        second = await there.ask("tools/call", call("write", asked, "Ada"))
        texts = [str(one.value) for one in await store.scan("gateway-sessions")]

    assert len(living) == 2
    assert second["resultType"] == "input_required"
    assert not any("Ada" in one for one in texts)
