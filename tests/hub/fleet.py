"""Servers for the tests of this folder, as entries of a config, and the bounded waits the tests share.

Asserts nothing about hubs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio

from tests.servers.fixtures import echo_command, fault_command
from toolweave import Hub, McpConnection, ServerConfig, ToolsChanged, Toolset, connect_mcp_servers
from toolweave.connect import Channel, memory_channels

__all__ = [
    "BOUND",
    "ToolServer",
    "absent",
    "alive",
    "echo",
    "eventually",
    "fault",
    "next_change",
    "opened",
    "pid_of",
    "waiting",
]

BOUND = 20.0
"""Seconds after which a test gives up; nothing here should take a tenth of it."""

Json = dict[str, Any]


def entry(command: list[str], settings: Mapping[str, Any]) -> Json:
    """Return a config entry that starts a command."""
    return {"command": command[0], "args": command[1:], **settings}


def echo(*options: object, **settings: Any) -> Json:
    """Return the entry of a well-behaved server."""
    return entry(echo_command(*options), settings)


def fault(mode: str, *options: object, **settings: Any) -> Json:
    """Return the entry of a misbehaving server."""
    return entry(fault_command(mode, *options), settings)


def absent(**settings: Any) -> Json:
    """Return the entry of a program that does not exist."""
    return {"command": "toolweave-test-no-such-program", **settings}


def waiting(folder: Path, name: str, count: int, **settings: Any) -> Json:
    """Return the entry of a server that makes `folder/name` and serves once the folder holds `count` files."""
    folder.mkdir(exist_ok=True)
    script = Path(__file__).with_name("waiting.py")
    command = [sys.executable, "-S", "-E", str(script), str(folder), name, str(count)]
    command += echo_command("--name", name)
    return entry(command, {"timeout": {"close": 0.2}, **settings})  # while it waits it does not see us go


@asynccontextmanager
async def opened(servers: Mapping[str, Any], **options: Any) -> AsyncGenerator[Hub]:
    """Open a hub for the block, all of it within a bound."""
    with anyio.fail_after(BOUND):
        async with connect_mcp_servers({"mcpServers": servers}, **options) as hub:
            yield hub


@asynccontextmanager
async def next_change(toolset: Toolset, *, adds: str = "", removes: str = "") -> AsyncGenerator[list[ToolsChanged]]:
    """Wait at the end of the block for the change that adds or removes a name; yields all that came."""
    came: list[ToolsChanged] = []
    seen = anyio.Event()

    def listen(change: ToolsChanged) -> None:
        came.append(change)
        if adds in (*change.added, "") and removes in (*change.removed, ""):
            seen.set()

    unsubscribe = toolset.subscribe(listen)
    try:
        yield came
        with anyio.fail_after(BOUND):
            await seen.wait()
    finally:
        unsubscribe()


async def eventually(condition: Callable[[], object | Awaitable[object]]) -> None:
    """Wait until a condition holds that no event tells of."""
    with anyio.fail_after(BOUND):
        while True:
            outcome = condition()
            if await cast("Awaitable[object]", outcome) if isinstance(outcome, Awaitable) else outcome:
                return
            await anyio.sleep(0.01)


def pid_of(connection: McpConnection) -> int:
    """Return the id of the server's process, 0 while it is being started."""
    detail = next((step.detail for step in connection.report.steps if step.name == "start the process"), "")
    return int(detail.removeprefix("pid ") or 0)


def alive(pid: int) -> bool:
    """Return whether a process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class ToolServer:
    """A server in this process that offers tools by name; each answers with its server's and its own name.

    Attributes:
        name: What its answers begin with.
        tools: The names it lists; change them and call `changed`.
        results: What some of them answer instead.
        called: The names it was called by, as they came over the wire.
    """

    def __init__(self, name: str, tools: Iterable[str], *, results: Mapping[str, Json] | None = None) -> None:
        self.name = name
        self.tools = list(tools)
        self.results = dict(results or {})
        self.called: list[str] = []
        self._channel: Channel | None = None
        self._stack = AsyncExitStack()

    def config(self, **settings: Any) -> ServerConfig:
        """Return what connects to it."""
        return ServerConfig(name=self.name, server=self, protocol="legacy", **settings)

    async def changed(self, tools: Iterable[str]) -> None:
        """Offer other tools and say so."""
        self.tools = list(tools)
        assert self._channel is not None
        await self._channel.send(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')

    async def __aenter__(self) -> Channel:
        self._stack = AsyncExitStack()
        return await self._stack.enter_async_context(self._serve())

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def _serve(self) -> AsyncGenerator[Channel]:
        ours, theirs = memory_channels()
        self._channel = theirs

        async def read() -> None:
            try:
                while True:
                    message: Json = json.loads(await theirs.receive())
                    if "id" in message:
                        answer = {"jsonrpc": "2.0", "id": message["id"], "result": self._answer(message)}
                        await theirs.send(json.dumps(answer).encode())
            except (EOFError, BrokenPipeError):
                return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            yield ours
            ours.close()
            theirs.close()

    def _answer(self, message: Json) -> Json:
        match message["method"]:
            case "initialize":
                info = {"name": self.name, "version": "1"}
                capabilities = {"tools": {"listChanged": True}}
                return {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}
            case "tools/list":
                return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]}
            case _:
                name = message["params"]["name"]
                self.called.append(name)
                return self.results.get(name) or {"content": [{"type": "text", "text": f"{self.name}|{name}"}]}
