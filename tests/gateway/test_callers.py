"""Callers are kept apart: over HTTP, with tokens and without, nobody goes on with the call of another."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.gateway.relayed import Json, gateway_to, upstream
from tests.gateway.running import upstream as process
from tests.serve.exchanges import call, events
from tests.serve.serving import served_http
from toolweave import Callbacks, Hub, ProtocolError, connect_mcp
from toolweave.gateway import create_gateway
from toolweave.serve import BearerAuth
from toolweave.testing import MemoryServer

TEST_SECONDS = 60

TOKENS = {"alice-0123456789abcdef": "alice", "mallory-0123456789abc": "mallory"}
ALICE, MALLORY = ({"Authorization": f"Bearer {token}"} for token in TOKENS)
ABLE: Json = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "sampling": {}, "roots": {}}}
FORM: Json = {"action": "accept", "content": {"name": "Ada"}}


@asynccontextmanager
async def served(kind: str, *, tokens: bool = True) -> AsyncGenerator[str]:
    """Serve a gateway over HTTP; yield its URL."""
    with upstream(kind) as config:
        auth = BearerAuth(tokens=TOKENS) if tokens else None
        async with served_http(gateway_to(config), auth=auth) as url:
            yield url


async def elicited(url: str, headers: dict[str, str] | None = None, asked: Json | None = None) -> Json:
    """Make a call that asks, or go on with it; return the answer's message."""
    more: Json = {}
    if asked is not None:
        responses = dict.fromkeys(asked["inputRequests"], FORM)
        more = {"requestState": asked["requestState"], "inputResponses": responses}
    answer = await call(url, "elicit", headers=headers, meta=ABLE, **more)
    return events(answer.body)[-1]


@pytest.mark.parametrize("kind", ["http-legacy", "http-modern"])
async def test_nobody_goes_on_with_the_call_of_another_principal(kind: str) -> None:
    async with served(kind) as url:
        asked = (await elicited(url, ALICE))["result"]
        stolen = await elicited(url, MALLORY, asked)
        own = (await elicited(url, ALICE, asked))["result"]

    assert stolen["error"]["code"] == -32602
    assert not own.get("isError")
    assert "accept" in json.dumps(own)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["http-legacy", "stdio-legacy"])
async def test_callers_without_a_name_are_asked_as_well(kind: str) -> None:
    async with served(kind, tokens=False) as url:
        first, second = (await elicited(url))["result"], (await elicited(url))["result"]
        answers = [(await elicited(url, None, asked))["result"] for asked in (second, first)]

    assert first["requestState"] != second["requestState"]
    assert all("accept" in json.dumps(answer) for answer in answers)


async def test_what_a_legacy_upstream_asks_outside_of_any_call_is_refused() -> None:
    server = MemoryServer(protocol="legacy")

    @server.tool
    def f() -> str:
        return "done"

    callbacks = Callbacks(elicitation=lambda request: {"name": "Ada"})
    gateway = create_gateway({"up": {"server": server, "tool_prefix": ""}})
    async with connect_mcp(gateway, callbacks=callbacks) as caller:
        await caller.call_tool("f")
        with pytest.raises(ProtocolError, match="no request is running"):
            await server.ask("elicitation/create", {"message": "?", "requestedSchema": {"type": "object"}})


async def test_callers_that_can_answer_nothing_share_the_connection_of_the_hub() -> None:
    server = MemoryServer(protocol="legacy")

    @server.tool
    def f() -> str:
        return "done"

    gateway = create_gateway({"up": {"server": server, "tool_prefix": ""}})
    able = Callbacks(elicitation=lambda request: {})
    async with connect_mcp(gateway) as one, connect_mcp(gateway) as two:
        for caller in (one, two):
            await caller.call_tool("f")
        shared = server.conversations
        async with connect_mcp(gateway, callbacks=able) as three:
            for _ in range(2):
                await three.call_tool("f")
            own = server.conversations

    assert (shared, own) == (1, 2)


async def test_a_server_that_was_taken_away_is_an_error_of_its_calls_alone() -> None:
    server = MemoryServer()

    @server.tool
    def f() -> str:
        return "done"

    hub = Hub({"up": {"server": server, "tool_prefix": ""}, "other": {"server": server}})
    async with connect_mcp(create_gateway(hub)) as caller:
        await hub.disconnect("up")
        with pytest.raises(ProtocolError) as refused:
            await caller.call_tool("f")
        assert refused.value.code == -32602
        assert (await caller.call_tool("other_f")).text == "done"


async def test_a_prompt_of_a_server_that_was_taken_away_is_unknown() -> None:
    server = MemoryServer()

    @server.prompt
    def greet() -> str:
        return "hello"

    hub = Hub({"up": {"server": server}, "other": {"server": server}})
    async with connect_mcp(create_gateway(hub)) as caller:
        await caller.get_prompt("up_greet")
        await hub.disconnect("up")
        with pytest.raises(ProtocolError, match="Unknown prompt") as refused:
            await caller.get_prompt("up_greet")
        assert refused.value.code == -32602
        await caller.get_prompt("other_greet")


@pytest.mark.slow
async def test_the_process_that_a_caller_has_of_a_server_ends_with_it(tmp_path: Path) -> None:
    servers = {name: {**process(tmp_path, name), "protocol": "legacy"} for name in ("gone", "stays")}
    gateway = create_gateway(servers)
    able = Callbacks(elicitation=lambda request: {})
    async with connect_mcp(gateway, callbacks=able) as caller:
        pids: dict[str, int] = {}
        for name in servers:
            content: Any = (await caller.call_tool(f"{name}_who")).structured_content
            pids[name] = content["pid"]
        await gateway.hub.disconnect("gone")
        while Path(f"/proc/{pids['gone']}").exists():
            await anyio.sleep(0.05)
        after: Any = (await caller.call_tool("stays_who")).structured_content

    assert after["pid"] == pids["stays"]
