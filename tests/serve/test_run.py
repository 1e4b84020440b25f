"""A server in one line: a name, its tools, and `run()`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolweave import connect_mcp, create_mcp_server

TEST_SECONDS = 60

PROGRAM = """
from toolweave import create_mcp_server

def add(a: int, b: int) -> int:
    return a + b

create_mcp_server("demo", tools=[add]).run({options})
"""


def program(tmp_path: Path, options: str = "") -> Path:
    file = tmp_path / "demo.py"
    file.write_text(PROGRAM.replace("{options}", options), encoding="utf-8")
    return file


@pytest.mark.slow
async def test_run_serves_over_stdio(tmp_path: Path) -> None:
    async with connect_mcp(str(program(tmp_path))) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
        assert (client.server_info["name"], client.server_info["version"]) == ("demo", "0.1.0")


@pytest.mark.slow
async def test_run_serves_over_http_where_that_is_asked_for(tmp_path: Path) -> None:
    options = 'transport="http", host="127.0.0.1", port=0, on_started=lambda url: print(url, flush=True)'
    command = [sys.executable, str(program(tmp_path, options))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = await anyio.to_thread.run_sync(process.stdout.readline)
            async with connect_mcp(f"{url.strip()}/mcp") as client:
                assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
        finally:
            process.terminate()


def test_run_names_the_transports_that_there_are() -> None:
    transport: Any = "carrier pigeon"
    with pytest.raises(ValueError, match="'stdio' or 'http'"):
        create_mcp_server("demo").run(transport)


async def test_run_inside_an_event_loop_says_what_to_await() -> None:
    with pytest.raises(RuntimeError, match="await serve_stdio"):
        create_mcp_server("demo").run()
    with pytest.raises(RuntimeError, match="await serve_http"):
        create_mcp_server("demo").run(transport="http")
