"""Calls that run while their connection is closed from our side: the process did not fail, and is not blamed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolweave import CallContext, McpTools, ToolCall, ToolResult, connect_mcp
from toolweave.tools import Progress, Toolset

pytestmark = pytest.mark.slow
BOTH_ERAS = pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
SERVER = """
import sys, anyio
from toolweave import CallContext, create_mcp_server

async def wait(ctx: CallContext) -> str:
    print("Processing request", file=sys.stderr, flush=True)
    await ctx.progress(1)
    await anyio.sleep_forever()

create_mcp_server("waiting", tools=[wait]).run_stdio()
"""


def waiting(folder: Path, protocol: str) -> dict[str, Any]:
    path = folder / "server.py"
    path.write_text(SERVER)
    return {"command": sys.executable, "args": [str(path)], "protocol": protocol}


async def outcome(toolset: Toolset, close: Any) -> ToolResult:
    """Call the tool, close once it runs, and return the result of the call."""
    runs, results = anyio.Event(), list[ToolResult]()

    def running(progress: Progress) -> None:
        runs.set()

    async def call() -> None:
        results.append(await toolset.call(ToolCall(name="wait"), CallContext(on_progress=running)))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await runs.wait()
            await close()
    return results[0]


@BOTH_ERAS
async def test_a_call_that_an_update_of_a_component_ends_names_no_words_of_the_process(
    tmp_path: Path, protocol: str
) -> None:
    async with McpTools("waiting", waiting(tmp_path, protocol)) as component:
        result = await outcome(component, lambda: component.update({"env": {"A": "b"}}))

    assert result.text == "MCP error: server 'waiting': the connection was closed while the call ran"
    assert result.require_error().data is None or "stderr" not in result.require_error().data


@BOTH_ERAS
async def test_a_call_that_a_close_ends_names_no_words_of_the_process(tmp_path: Path, protocol: str) -> None:
    async with connect_mcp(waiting(tmp_path, protocol), name="waiting") as connection:
        result = await outcome(connection, connection.close)

    assert result.text == "MCP error: server 'waiting': the connection was closed while the call ran"
