"""More servers than the machine can start at once."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

from tests.hub.fleet import opened, waiting
from tests.programs import ran
from toolweave import McpConnection, ServerConfig
from toolweave.connect import ConnectionState
from toolweave.hub._starting import StartLimiter


@pytest.mark.slow
async def test_no_more_servers_start_at_once_than_the_limit_and_all_of_them_do(tmp_path: Path) -> None:
    limit, count = StartLimiter().limit, StartLimiter().limit + 3
    names = [f"s{number}" for number in range(count)]
    async with opened({name: waiting(tmp_path, name, limit + 1) for name in names}, wait=0) as hub:
        with anyio.fail_after(30):
            while len(list(tmp_path.glob("s*"))) < limit:
                await anyio.sleep(0.01)
            assert list(hub.states().values()).count(ConnectionState.CONNECTING) == limit
            assert list(hub.states().values()).count(ConnectionState.IDLE) == 3
            (tmp_path / "go").touch()
            while set(hub.states().values()) != {ConnectionState.READY}:
                await anyio.sleep(0.01)
        assert {spec.server for spec in hub.snapshot()} == set(names)


async def test_a_connection_that_was_closed_while_it_waited_is_passed_over() -> None:
    starts = StartLimiter(limit=1)
    first, second, third = (
        McpConnection(ServerConfig(name=name, command="toolweave-test-no-such-command")) for name in ("a", "b", "c")
    )
    for connection in (first, second, third):
        starts.begin(connection)
    await second.close()
    starts.settled(first)
    assert first.state is third.state is ConnectionState.CONNECTING
    assert second.state is ConnectionState.CLOSED
    await first.close()
    await third.close()


FEW_DESCRIPTORS = """
import asyncio, logging, os, resource, sys
import subprocess
import sys
from pathlib import Path
from toolweave import connect_mcp_servers

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
logging.disable()

async def main():
    servers = {f"s{number}": {"command": sys.executable, "args": ["-c", sys.argv[1]]} for number in range(20)}
    async with connect_mcp_servers(servers, on_error="skip") as hub:
        tools = list(hub.tools)
        results = await asyncio.gather(*(tool.execute({}) for tool in tools))
        print(len(tools), sum(result.text == "ok" for result in results))
        errors = {str(error).partition("Errno")[2] for error in hub.errors.values()}
        print(len(hub.errors), *errors, sep="|")
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    print("left:", children.read_text() if children.exists() else "")

asyncio.run(main())
"""
SERVER = """
import json, sys
results = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}},
    "tools/list": {"tools": [{"name": "a"}]},
    "tools/call": {"content": [{"type": "text", "text": "ok"}]},
}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        response = {"jsonrpc": "2.0", "id": message["id"], "result": results.get(message["method"], {})}
        print(json.dumps(response), flush=True)
"""


@pytest.mark.slow
def test_of_more_servers_than_file_descriptors_allow_as_many_run_as_can_and_each_other_names_the_limit() -> None:
    run = ran([sys.executable, "-c", FEW_DESCRIPTORS, SERVER])

    running, right = map(int, run.stdout.splitlines()[0].split())
    failed, _, error = run.stdout.splitlines()[1].partition("|")
    assert run.stderr == ""
    assert running == right >= 10
    assert running + int(failed) == 20
    assert error == (
        " 24] Too many open files; raise the limit of open files (`ulimit -n`), or connect to fewer servers at once"
    )
    assert run.stdout.splitlines()[2].strip() == "left:"
