"""Log messages of upstreams: at the level of each caller, on the stream of the call that they belong to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from tests.gateway.relayed import calling, upstream
from tests.gateway.upstreams import LEGACY, MODERN, Json, caller
from tests.serve.raw import Raw
from tests.serve.serving import served_http
from toolweave import Callbacks, CallContext, Hub, McpServer, create_mcp_server
from toolweave.gateway import create_gateway
from toolweave.serve import HttpLimits
from toolweave.testing import MemoryServer
from toolweave.testing.servers import stdio_server_command

TEST_SECONDS = 60

PAIRS = pytest.mark.parametrize(
    ("version", "protocol"), [(MODERN, MODERN), (LEGACY, "legacy"), (MODERN, "legacy"), (LEGACY, MODERN)]
)
LOGGED = "notifications/message"


def talkative() -> McpServer:
    """Return a server whose tool logs at three levels."""
    server = create_mcp_server(name="talkative", version="1", logging=True)

    async def talk(ctx: CallContext) -> str:
        for level in ("debug", "info", "error"):
            await ctx.log(level, {"level": level}, logger="inside")
        return "done"

    server.tool(talk)
    return server


async def logged(raw: Raw, level: str | None, **meta: Any) -> list[Json]:
    """Call the tool at a level and return the messages that came before its answer."""
    if level is not None and raw.version == MODERN:
        meta["io.modelcontextprotocol/logLevel"] = level
    elif level is not None:
        await raw.ask(raw.request("logging/setLevel", {"level": level}))
    await raw.ask(raw.request("tools/call", {"name": "up_talk", "arguments": {}, "_meta": meta}))
    return [one["params"] for one in raw.take_early() if one.get("method") == LOGGED]


@PAIRS
async def test_a_caller_gets_the_messages_of_its_call_at_its_level(version: str, protocol: str) -> None:
    gateway = create_gateway({"up": {"server": talkative(), "protocol": protocol}})
    async with caller(gateway, version) as raw:
        found = {level: await logged(raw, level) for level in ("debug", "error", "emergency")}

    assert [one["level"] for one in found["debug"]] == ["debug", "info", "error"]
    assert found["error"] == [{"level": "error", "data": {"level": "error"}, "logger": "inside"}]
    assert found["emergency"] == []


@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_calls_to_an_upstream_over_http_need_no_session_more_for_their_messages(version: str) -> None:
    limits = HttpLimits(sessions=1, shutdown_seconds=2)
    async with served_http(talkative(), limits=limits) as url:
        gateway = create_gateway({"up": {"url": url, "protocol": "legacy"}})
        async with caller(gateway, version) as raw:
            found = await logged(raw, "info", **{"io.modelcontextprotocol/clientCapabilities": {}})

    assert [one["level"] for one in found] == ["info", "error"]


@pytest.mark.parametrize("protocol", [MODERN, "legacy"])
async def test_a_modern_caller_that_names_no_level_gets_nothing(protocol: str) -> None:
    gateway = create_gateway({"up": {"server": talkative(), "protocol": protocol}})
    async with caller(gateway, MODERN) as raw:
        assert await logged(raw, None) == []


async def test_a_level_is_refused_where_no_upstream_logs_and_when_there_is_no_such() -> None:
    quiet = create_mcp_server(name="quiet", version="1")
    async with caller(create_gateway({"up": {"server": quiet}}), LEGACY) as raw:
        mute = await raw.ask(raw.request("logging/setLevel", {"level": "info"}))
    async with caller(create_gateway({"up": {"server": talkative()}}), LEGACY) as raw:
        wrong = await raw.ask(raw.request("logging/setLevel", {"level": "loud"}))

    assert (mute["error"]["code"], wrong["error"]["code"]) == (-32601, -32602)


def levels(server: MemoryServer) -> list[Any]:
    """Return the levels that a server was asked for."""
    return [one.params["level"] for one in server.requests if one.method == "logging/setLevel"]


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not condition():
            await anyio.sleep(0.01)


async def test_a_legacy_upstream_has_the_level_of_the_most_talkative_session() -> None:
    upstream = MemoryServer(protocol="legacy")
    hub = Hub({"up": {"server": upstream}})
    gateway = create_gateway(hub)
    async with hub, caller(gateway, LEGACY) as first:
        await first.ask(first.request("logging/setLevel", {"level": "error"}))
        async with caller(gateway, LEGACY) as second:
            await second.ask(second.request("logging/setLevel", {"level": "debug"}))
            await first.ask(first.request("logging/setLevel", {"level": "warning"}))
            shared = levels(upstream)
        await until(lambda: gateway.changes.conversation("nobody") is None)
        await first.ask(first.request("logging/setLevel", {"level": "critical"}))

    assert shared == ["error", "debug", "debug"]
    assert levels(upstream)[-1] == "critical"


async def test_an_upstream_that_refuses_its_level_costs_the_caller_nothing() -> None:
    upstream = MemoryServer(protocol="legacy")
    for _ in range(5):
        upstream.fail_next("logging/setLevel", "no")
    async with caller(create_gateway({"up": {"server": upstream}}), LEGACY) as raw:
        answer = await raw.ask(raw.request("logging/setLevel", {"level": "info"}))

    assert answer["result"] == {}


@pytest.mark.slow
@pytest.mark.parametrize(("version", "kind"), [(MODERN, "stdio-modern"), (LEGACY, "stdio-legacy")])
async def test_messages_of_a_server_in_a_process_reach_the_caller_of_the_call_alone(version: str, kind: str) -> None:
    meta: Json = {"io.modelcontextprotocol/logLevel": "info"} if version == MODERN else {}
    call: Json = {"name": "log", "arguments": {"message": "m", "level": "info"}}
    with upstream(kind) as config:
        gateway = create_gateway({"up": config})
        async with gateway.running(), caller(gateway, version) as raw, caller(gateway, version) as other:
            if version == LEGACY:
                await raw.ask(raw.request("logging/setLevel", {"level": "info"}))
                await other.ask(other.request("logging/setLevel", {"level": "error"}))
            await other.ask(other.request("tools/call", call))
            await raw.ask(raw.request("tools/call", {**call, "_meta": meta}))
            found = [one["params"]["level"] for one in raw.take_early() if one.get("method") == LOGGED]
            unwanted = [one for one in other.take_early() if one.get("method") == LOGGED]

    assert found == ["info"]
    assert unwanted == []


@pytest.mark.slow
@pytest.mark.parametrize("carrier", ["inprocess", "http"])
async def test_a_caller_that_takes_tasks_gets_the_messages_of_a_server_in_a_process_that_makes_none(
    carrier: str,
) -> None:
    heard: list[object] = []
    callbacks = Callbacks(logging=lambda message: heard.append(message.data), log_level="info")
    command, *args = stdio_server_command("--era", "modern")
    gateway = create_gateway({"up": {"command": command, "args": args, "tool_prefix": ""}})
    async with gateway.running(), calling(gateway, MODERN, callbacks=callbacks, carrier=carrier) as client:
        await client.call_tool("log", {"message": "m", "level": "error"})
        await until(lambda: bool(heard))

    assert heard == ["m"]
