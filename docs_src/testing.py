"""Tests of an agent: in memory, against servers that misbehave, and with a recorded session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from toolweave import CallContext, McpConnection, ServerConfig, ToolCall, Toolset, connect_mcp
from toolweave.testing import FakeClock, MemoryServer


# region first
async def price_text(prices: Toolset, item: str, timeout: float = 10) -> str:
    """The agent under test: return what an item costs, or why the price is unknown."""
    call = ToolCall(name="price", arguments={"item": item})
    result = await prices.call(call, CallContext(timeout=timeout))
    if result.is_error:
        return f"no price: {result.require_error().kind}"
    return f"{item} costs {result.text}"


pytestmark = pytest.mark.anyio  # the plugin comes with anyio, which comes with Toolweave


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def shop(mcp_server: type[MemoryServer]) -> MemoryServer:
    server = mcp_server(name="shop")

    @server.tool
    def price(item: str) -> str:
        return {"tea": "3.50", "milk": "1.20"}[item]

    return server


async def test_the_agent_asks_for_the_price(shop: MemoryServer) -> None:
    async with connect_mcp(shop) as prices:
        assert await price_text(prices, "tea") == "tea costs 3.50"

    assert shop.calls == [ToolCall(name="price", arguments={"item": "tea"})]


async def test_the_agent_survives_a_crash(shop: MemoryServer) -> None:
    async with connect_mcp(shop) as prices:
        shop.crash(on="tools/call")

        assert await price_text(prices, "tea") == "no price: outcome_unknown"
        assert await price_text(prices, "tea") == "tea costs 3.50"

    assert shop.conversations == 2


async def test_the_agent_does_not_wait_for_ever(shop: MemoryServer) -> None:
    async with connect_mcp(shop) as prices:
        shop.hang(tool="price")

        assert await price_text(prices, "tea", timeout=0.1) == "no price: timeout"


# endregion
# region more
async def test_the_agent_notices_that_a_tool_is_gone(shop: MemoryServer) -> None:
    changed = anyio.Event()
    async with connect_mcp(shop) as prices:
        prices.on("tools_changed", lambda change: changed.set() if "price" in change.removed else None)
        shop.remove_tool("price")
        await changed.wait()

        assert await price_text(prices, "tea") == "no price: not_found"


async def test_the_agent_reports_an_error_and_then_a_price(shop: MemoryServer) -> None:
    async with connect_mcp(shop, restart="never") as prices:
        shop.fail_next("tools/call", "closed today", code=-32050)
        shop.answer("tools/call", {"content": [{"type": "text", "text": "4.00"}]}, times=1)

        assert await price_text(prices, "tea") == "no price: protocol"
        assert await price_text(prices, "tea") == "tea costs 4.00"
        assert await price_text(prices, "tea") == "tea costs 3.50"


# endregion
# region faults
@pytest.mark.parametrize("fault", ["dies_at_probe", "garbage_stdout", "notification_storm"])
async def test_the_agent_gets_its_answer_whatever_the_server_does(
    fault: str, faulty_stdio: Callable[..., list[str]]
) -> None:
    async with connect_mcp(faulty_stdio(fault)) as server:
        assert (await server.call_tool("echo", {"text": "hello"})).text == "hello"


async def test_the_agent_retries_when_it_is_asked_to_come_back_later(faulty_http: Callable[..., str]) -> None:
    url = faulty_http("status_429", "--on", "tools/call", "--times", 1)
    async with connect_mcp(url) as server:
        assert (await server.call_tool("echo", {"text": "hello"})).text == "hello"


# endregion
# region clock
async def test_a_restart_waits_for_its_time(shop: MemoryServer, fake_clock: FakeClock) -> None:
    async with McpConnection(ServerConfig(server=shop, name="shop"), clock=fake_clock) as prices:
        shop.crash()
        await fake_clock.until_sleeping()
        assert prices.state == "backoff"

        await fake_clock.advance(60)
        assert await price_text(prices, "tea") == "tea costs 3.50"


async def test_the_agent_adds(mcp_cassette: Callable[..., Any]) -> None:
    target = mcp_cassette(["python", "-m", "toolweave.cli.demo.numbers"])
    async with connect_mcp(target, name="numbers") as numbers:
        result = await numbers.call_tool("add", {"values": [1, 2, 39]})

    assert result.structured_content == {"sum": 42}


# endregion
if __name__ == "__main__":
    import os
    import sys

    options = ("-c", os.devnull, "-W", "error", "-p", "no:terminal", "-p", "no:cacheprovider")
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *options, __file__])
