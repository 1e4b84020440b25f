"""How a server begins and ends: nobody is listened to before all is there, and signals end it at any time."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import anyio
import pytest

from tests.programs import free_port
from toolweave.serve import create_mcp_server
from toolweave.tools import ToolRegistry

pytestmark = pytest.mark.slow

VISITS = """
import http.client, json, os, signal, sys, threading
from toolweave import create_mcp_server, tool

@tool
def plain(text: str) -> str: return text

@tool
async def in_loop(text: str) -> str: return text

KEY = "io.modelcontextprotocol/"
META = {KEY + "protocolVersion": "2026-07-28", KEY + "clientCapabilities": {}}
HEAD = {"content-type": "application/json", "accept": "application/json, text/event-stream"}

def visit(url):
    def post(message, headers):
        connection = http.client.HTTPConnection(url.removeprefix("http://"))
        connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", **message}), {**HEAD, **headers})
        answer = connection.getresponse()
        answer.read()
        assert answer.status in (200, 202), (answer.status, message)
        return dict(answer.headers)

    def modern(method, tool=None, **params):
        params["_meta"] = META
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method, **({"mcp-name": tool} if tool else {})}
        post({"id": 1, "method": method, "params": params}, headers)

    before = set(sys.modules)
    modern("server/discover")
    modern("tools/list")
    for name in ("plain", "in_loop"):
        modern("tools/call", name, name=name, arguments={"text": "x"})
        modern("tools/call", name, name=name, arguments={"text": 3})
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    began = post({"id": 1, "method": "initialize", "params": hello}, {})
    session = {"mcp-session-id": began["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    post({"method": "notifications/initialized"}, session)
    post({"id": 2, "method": "tools/list"}, session)
    post({"id": 3, "method": "tools/call", "params": {"name": "plain", "arguments": {"text": "x"}}}, session)
    print(json.dumps(sorted(set(sys.modules) - before)), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

server = create_mcp_server(name="s", version="1", tools=[plain, in_loop])
server.run_http(port=0, on_started=lambda url: threading.Thread(target=visit, args=(url,)).start())
"""


async def test_the_first_requests_over_http_import_nothing() -> None:
    with anyio.fail_after(90):
        done = await anyio.run_process([sys.executable, "-c", VISITS], stderr=None)

    assert json.loads(done.stdout) == []


class Beginning(ToolRegistry):
    """Tools that never open, and are stopped meanwhile."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port
        self.received: list[str] = []

    async def __aenter__(self) -> Self:
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except ConnectionRefusedError:
            self.received.append("refused")
        signal.raise_signal(signal.SIGTERM)
        try:
            await anyio.sleep_forever()
        finally:
            self.received.append("cancelled")
        return self


async def test_while_a_server_begins_its_port_is_closed_and_a_signal_ends_it() -> None:
    tools = Beginning(free_port())
    server = create_mcp_server(name="s", version="1", tools=tools)

    with anyio.fail_after(30):
        await server.serve_http(port=tools.port)

    assert tools.received == ["refused", "cancelled"]


async def test_a_port_that_is_taken_is_an_error_of_the_one_who_comes_second() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        await create_mcp_server(name="s", version="1").serve_http(port=taken.getsockname()[1])


BEGINNING = """
import sys
from pathlib import Path
import anyio
from toolweave import create_mcp_server, tool
from toolweave.tools import ToolRegistry

class Kept(ToolRegistry):
    async def __aenter__(self):
        if sys.argv[1] == "begins":
            print("here", file=sys.stderr, flush=True)
            try:
                await anyio.sleep_forever()
            finally:
                Path(sys.argv[2]).write_text("cleaned up")
        print("here", file=sys.stderr, flush=True)
        return await super().__aenter__()

    async def __aexit__(self, *exc):
        await super().__aexit__(*exc)
        Path(sys.argv[2]).write_text("cleaned up")

create_mcp_server(name="s", version="1", tools=Kept()).run_stdio()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="platform: signals")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("stage", ["begins", "serves"])
async def test_a_signal_ends_a_server_over_stdio_in_good_order(
    stage: str, number: signal.Signals, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    command = [sys.executable, "-c", BEGINNING, stage, str(note)]
    options: dict[str, Any] = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "env": {**os.environ}}
    with anyio.fail_after(60):
        async with await anyio.open_process(command, **options) as process:
            assert process.stderr is not None
            assert (await process.stderr.receive()).startswith(b"here")
            process.send_signal(number)
            code = await process.wait()

    assert code == 0
    assert note.read_text() == "cleaned up"
