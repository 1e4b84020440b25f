"""Upstreams that are down when a gateway starts, come later, die and return, while callers keep calling."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from tests.gateway.running import RunningGateway, gateway, until, upstream, write_gateway_config
from tests.programs import free_port
from toolweave import CallContext, McpConnection, ToolCall, connect_mcp, connect_mcp_servers, create_mcp_server
from toolweave.connect import ConnectionState
from toolweave.errors import ProtocolError
from toolweave.gateway import create_gateway

TEST_SECONDS = 120

pytestmark = pytest.mark.slow

BOUND = 120
ERAS = ["2025-11-25", "2026-07-28"]

SERVER = """
import sys
from toolweave import create_mcp_server

server = create_mcp_server(name="late")

@server.tool
def look() -> str:
    "Look."
    return "saw"

@server.prompt
def greet() -> str:
    "Greet."
    return "Hello"

@server.resource("state://late", name="state")
def state() -> str:
    return "here"

server.run_http("127.0.0.1", int(sys.argv[1]))
"""


def url_of(port: int) -> str:
    return f"http://127.0.0.1:{port}/mcp"


@contextmanager
def served(folder: Path, port: int) -> Generator[subprocess.Popen[bytes], None, None]:
    """Run the server over HTTP on this port; returns when it listens."""
    file = folder / "late_server.py"
    file.write_text(SERVER)
    with subprocess.Popen([sys.executable, str(file), str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: listens(port), "the server")
            yield process
        finally:
            process.kill()


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def states(running: RunningGateway) -> dict[str, str]:
    return {one["name"]: one["state"] for one in running.status()["upstreams"]}


async def eventually_called(connection: McpConnection, tool: str) -> str:
    """Call a tool until it answers; return its text. Whatever comes before must name the server."""
    while True:
        result = await connection.call_tool(tool)
        if not result.is_error:
            return result.text
        assert "server 'h'" in result.text
        await anyio.sleep(0.2)


@pytest.mark.parametrize("prefix", [None, ""])
@pytest.mark.parametrize("revision", ERAS)
async def test_a_server_that_is_down_at_the_start_is_found_when_it_comes(
    tmp_path: Path, revision: str, prefix: str | None
) -> None:
    port = free_port()
    entry = {"url": url_of(port)} | ({} if prefix is None else {"tool_prefix": prefix})
    config = write_gateway_config(tmp_path, {"h": entry})
    tool = "h_look" if prefix is None else "look"
    with gateway(tmp_path, config) as running:
        assert running.spoken("GET", "/readyz").status == 200
        async with connect_mcp(running.entry(protocol=revision), name="g") as caller:
            before = await caller.call_tool(tool)
            assert before.is_error
            assert before.text.startswith("MCP error: server 'h' cannot be reached now")
            assert str(port) not in before.text
            assert "server 'h' cannot be reached now" in (caller.instructions or "")
            assert {"prompts", "resources", "tools"} <= caller.capabilities.keys()
            assert states(running)["h"] in ("backoff", "connecting")

            with served(tmp_path, port):
                assert await eventually_called(caller, tool) == "saw"
                while tool not in (await caller.list_tools()).names:  # the change is announced
                    await anyio.sleep(0.1)
                assert [one.uri for one in await caller.list_resources()] == ["state://late"]
        async with connect_mcp(running.entry(protocol=revision), name="g") as caller:
            assert "cannot be reached" not in (caller.instructions or "")


async def test_a_program_that_is_installed_later_is_found_too(tmp_path: Path) -> None:
    entry = upstream(tmp_path, "h")
    (tmp_path / "upstream.py").rename(tmp_path / "later.py")
    config = write_gateway_config(tmp_path, {"h": entry})
    with gateway(tmp_path, config) as running:
        async with connect_mcp(running.entry(), name="g") as caller:
            assert "server 'h' cannot be reached now" in (await caller.call_tool("h_who")).text
            (tmp_path / "later.py").rename(tmp_path / "upstream.py")
            assert '"name":"h"' in (await eventually_called(caller, "h_who")).replace(" ", "")


async def test_a_gateway_becomes_ready_when_the_server_that_it_requires_comes(tmp_path: Path) -> None:
    port = free_port()
    config = write_gateway_config(tmp_path, {"h": {"url": url_of(port)}}, {"required": ["h"]})
    with gateway(tmp_path, config) as running:
        assert running.spoken("GET", "/readyz").status == 503
        with served(tmp_path, port):
            until(lambda: running.spoken("GET", "/readyz").status == 200, "readiness")


async def test_prompts_and_resources_of_a_server_that_is_down_are_not_called_unknown(tmp_path: Path) -> None:
    entries = {"h": {"url": url_of(free_port())}, "up": upstream(tmp_path, "up")}
    async with connect_mcp(create_gateway(entries)) as caller:
        with pytest.raises(ProtocolError, match="server 'h' cannot be reached now"):
            await caller.get_prompt("h_greet")
        with pytest.raises(ProtocolError, match="cannot be asked now: 'h'"):
            await caller.read_resource("state://late")
        with pytest.raises(ProtocolError, match="Unknown prompt: up_other"):
            await caller.get_prompt("up_other")
        with pytest.raises(ProtocolError, match="Unknown tool: other_look"):
            await caller.call_tool("other_look")
        with pytest.raises(ProtocolError, match="Unknown tool: up_other"):
            await caller.call_tool("up_other")


async def test_a_virtual_server_says_that_its_server_is_down_and_nothing_of_others(tmp_path: Path) -> None:
    entries = {"h": {"url": url_of(free_port())}, "up": upstream(tmp_path, "up")}
    section = {"virtual": {"with": {"servers": ["h"], "prefix": "x_"}, "without": {"servers": ["up"]}}}
    config = write_gateway_config(tmp_path, entries, section)
    with gateway(tmp_path, config) as running:
        async with connect_mcp(running.entry("/mcp/with"), name="with") as caller:
            assert "server 'h' cannot be reached now" in (await caller.call_tool("x_h_look")).text
        async with connect_mcp(running.entry("/mcp/without"), name="without") as caller:
            with pytest.raises(ProtocolError, match="Unknown tool"):
                await caller.call_tool("h_look")
            assert "'h'" not in (caller.instructions or "")


async def test_callers_under_load_meet_the_state_of_a_server_that_comes_dies_and_returns(tmp_path: Path) -> None:
    port, answers, ended = free_port(), list[tuple[bool, str]](), anyio.Event()
    config = write_gateway_config(tmp_path, {"h": {"url": url_of(port)}, "up": upstream(tmp_path, "up")})

    async def call(caller: McpConnection) -> None:
        while not ended.is_set():
            result = await caller.call_tool("h_look")
            answers.append((result.is_error, result.text))
            assert not (await caller.call_tool("up_add", {"a": 1, "b": 2})).is_error
            await anyio.sleep(0.02)

    async def seen(*, works: bool) -> None:
        start = len(answers)
        while not any(failed is not works for failed, _ in answers[start:]):
            await anyio.sleep(0.05)

    with gateway(tmp_path, config) as running:
        async with (
            connect_mcp(running.entry(protocol="legacy"), name="a") as old,
            connect_mcp(running.entry(protocol="2026-07-28"), name="b") as new,
            anyio.create_task_group() as tasks,
        ):
            for caller in (old, new, old, new):
                tasks.start_soon(call, caller)
            await seen(works=False)
            for _ in range(2):
                with served(tmp_path, port):
                    await seen(works=True)
                await seen(works=False)
            ended.set()
        assert all("server 'h'" in text for failed, text in answers if failed)
        assert {text for failed, text in answers if not failed} == {"saw"}


async def test_a_hub_that_had_given_up_a_server_finds_it_once_it_is_served(tmp_path: Path) -> None:
    port = free_port()
    async with connect_mcp_servers({"h": {"url": url_of(port)}}) as hub:
        assert list(hub.errors) == ["h"]
        with served(tmp_path, port):
            async with connect_mcp(create_gateway(hub)) as caller:
                assert await eventually_called(caller, "h_look") == "saw"


async def test_a_server_of_tools_finds_the_late_servers_of_its_hub_too(tmp_path: Path) -> None:
    port = free_port()
    async with (
        connect_mcp_servers({"h": {"url": url_of(port)}}) as hub,
        connect_mcp(create_mcp_server("own", tools=[hub.prefixed("x")])) as caller,
    ):
        assert not (await caller.list_tools()).names
        with served(tmp_path, port):
            while "x_h_look" not in (await caller.list_tools()).names:
                await anyio.sleep(0.1)
            assert (await caller.call_tool("x_h_look")).text == "saw"


async def test_refreshing_a_hub_tries_the_servers_again_that_never_came_up(tmp_path: Path) -> None:
    port = free_port()
    async with connect_mcp_servers({"h": {"url": url_of(port)}}) as hub:
        await hub.refresh()
        assert hub.states() == {"h": ConnectionState.FAILED}
        with served(tmp_path, port):
            change = await hub.refresh()
            assert change.added == ("h_look",)
            assert (hub.errors, hub.states()) == ({}, {"h": ConnectionState.READY})
            assert (await hub.execute("h_look", {})).text == "saw"


async def test_calling_a_tool_of_a_server_that_never_came_up_tries_it_again_after_a_while(tmp_path: Path) -> None:
    port = free_port()
    async with connect_mcp_servers({"h": {"url": url_of(port)}}) as hub:
        with served(tmp_path, port), anyio.fail_after(BOUND):
            result = await hub.call(ToolCall(name="h_look"), CallContext())
            assert result.is_error
            assert "Unknown" not in result.text
            while (await hub.call(ToolCall(name="h_look"), CallContext())).is_error:
                await anyio.sleep(0.5)
