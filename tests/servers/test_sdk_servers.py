"""The servers on the official SDK answer over each of their transports."""

from __future__ import annotations

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.client import ConnectMode

from tests.servers.fixtures import running, sdk_command
from tests.servers.sdk_server import high_level, low_level


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_high_level_server_answers_in_process(mode: ConnectMode) -> None:
    seen: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    with anyio.fail_after(10):
        async with Client(high_level(), mode=mode) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            forecast = await client.call_tool("forecast", {"city": {"name": "Oslo"}, "days": 2})
            await client.call_tool("steps", {"count": 2}, progress_callback=on_progress)
            boom = await client.call_tool("boom", {})
    assert names == ["forecast", "add", "steps", "refuse", "boom"]
    assert forecast.structured_content == {
        "city": {"name": "Oslo", "country": "NO"},
        "degrees": [0.0, 1.0],
        "unit": "C",
    }
    assert seen == [1.0, 2.0]
    assert boom.is_error
    assert "secret" not in str(boom.content)


async def test_the_low_level_server_pages_its_tools() -> None:
    with anyio.fail_after(10):
        async with Client(low_level()) as client:
            page = await client.list_tools()
            rows = await client.call_tool("rows", {})
    assert page.next_cursor == "1"
    assert rows.structured_content == {"rows": [1, 2, 3]}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["high", "low"])
async def test_the_servers_run_as_processes_over_both_transports(kind: str) -> None:
    command = sdk_command("--kind", kind)
    with anyio.fail_after(30):
        async with Client(StdioServerParameters(command=command[0], args=command[1:])) as client:
            over_stdio = (await client.list_tools()).tools
        with running(sdk_command("--kind", kind, "--http", 0)) as port:
            async with Client(f"http://127.0.0.1:{port}/mcp") as client:
                over_http = (await client.list_tools()).tools
    assert [tool.name for tool in over_http] == [tool.name for tool in over_stdio]
