"""Forked processes: what was opened before the fork is the parent's, however the child ends."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import CompletedProcess

import anyio
import pytest

from tests.serve.serving import served_http
from toolweave import tool
from toolweave.serve import create_mcp_server

pytestmark = pytest.mark.slow

SERVER = """
from toolweave import create_mcp_server, tool

@tool
def add(a: int, b: int) -> int:
    return a + b

create_mcp_server(name="numbers", version="1", tools=[add]).run()
"""

PARENT = """
import multiprocessing, os, sys
import anyio
from toolweave import connect_mcp, connect_mcp_servers

how, program, url = sys.argv[1:]
SERVER = {"command": sys.executable, "args": [program]}

def forked():
    if how == "process":
        process = multiprocessing.get_context("fork").Process(target=print, args=("in the child",))
        process.start()
        return process.pid
    return os.fork()

async def used(connections, hub):
    found = [(await one.call_tool("add", {"a": 1, "b": 2})).text for one in connections]
    found.append((await hub.call_tool("hub_add", {"a": 1, "b": 2})).text)
    return found, [one.restarts for one in connections]

async def main():
    server = await connect_mcp(SERVER)
    async with (
        connect_mcp(SERVER) as entered,
        connect_mcp(url) as modern,
        connect_mcp({"url": url, "protocol": "legacy"}) as legacy,
        connect_mcp_servers({"hub": SERVER}) as hub,
    ):
        connections = [server, entered, modern, legacy]
        await used(connections, hub)
        child = forked()
        if child == 0:
            if how == "return":
                return
            raise SystemExit(3) if how == "exit" else ValueError("in the child")
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
            await anyio.sleep(0.02)
        print("child", os.waitstatus_to_exitcode(ended[1]))
        print(*await used(connections, hub))
        os._exit(0)  # closing needs threads, whose wake-up call asyncio shares with a child that leaves its loop

try:
    anyio.run(main)
except ValueError as exc:
    sys.exit(4 if str(exc) == "in the child" else 5)
"""


_MORE_TRIES = 5


async def parent(how: str, program: str, url: str) -> CompletedProcess[bytes]:
    """Run a process that forks while it has connections."""
    with anyio.fail_after(60):
        return await anyio.run_process(
            [sys.executable, "-c", PARENT, how, program, url], check=False, env={"PYTHONUNBUFFERED": "1"}
        )


@asynccontextmanager
async def numbers(folder: Path) -> AsyncGenerator[tuple[str, str]]:
    """Serve numbers: by a program for standard input and output, and over HTTP."""

    @tool
    def add(a: int, b: int) -> int:
        return a + b

    program = folder / "server.py"
    program.write_text(SERVER)
    async with served_http(create_mcp_server(name="numbers", version="1", tools=[add])) as url:
        yield str(program), url


@pytest.mark.parametrize(("how", "code"), [("exit", 3), ("return", 0), ("error", 4), ("process", 0)])
async def test_a_forked_process_ends_without_a_trace_and_leaves_the_connections_of_its_parent_open(
    how: str, code: int, tmp_path: Path
) -> None:
    async with numbers(tmp_path) as (program, url):
        done = await parent(how, program, url)
        for _ in range(_MORE_TRIES):
            # asyncio has no running loop in a forked process, and complains of that if a timer is due just then.
            if b"no running event loop" in done.stderr:
                done = await parent(how, program, url)

    assert done.stderr.decode() == ""
    lines = done.stdout.decode().splitlines()
    assert lines[-2:] == [f"child {code}", "['3', '3', '3', '3', '3'] [0, 0, 0, 0]"]
    assert done.returncode == 0


CHILDREN = """
import os, sys, time
import anyio
from toolweave import connect_mcp

program, url = sys.argv[1:]

async def main():
    async with (
        connect_mcp({"command": sys.executable, "args": [program]}),
        connect_mcp(url),
        connect_mcp({"url": url, "protocol": "legacy"}),
    ):
        children = []
        for _ in range(8):
            children.append(os.fork())
            if children[-1] == 0:
                time.sleep(4)  # so long that timers of the connections are due when the child leaves
                return
        for child in children:
            while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
                await anyio.sleep(0.02)
            print(os.waitstatus_to_exitcode(ended[1]))
        os._exit(0)

anyio.run(main)
"""


async def test_a_forked_process_ends_whatever_its_connections_waited_for(tmp_path: Path) -> None:
    async with numbers(tmp_path) as (program, url):
        with anyio.fail_after(120):
            done = await anyio.run_process([sys.executable, "-c", CHILDREN, program, url], check=False)

    assert done.stdout.decode().split() == ["0"] * 8
