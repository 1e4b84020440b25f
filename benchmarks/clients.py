"""The contenders: one way to call `payload` and to list tools for each client, over each transport."""

from __future__ import annotations

import importlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.raw import RawHttp, RawInProcess, RawStdio

__all__ = ["TRANSPORTS", "Open", "available", "http_url", "open_clients", "payload_server", "server_command"]

SERVER = Path(__file__).with_name("echo_server.py")
TRANSPORTS = ("stdio", "stdio modern", "http modern", "http legacy", "in-process")

Caller = Callable[[str, dict[str, Any]], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A connected client."""

    name: str
    call: Caller
    list_all: Callable[[], Awaitable[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a client shall connect to: one of the three is set."""

    modern: bool
    command: tuple[str, ...] = ()
    url: str = ""
    server: Any = None  # an in-process server of the SDK


def server_command(*options: object) -> tuple[str, ...]:
    """Return the command of the lean server."""
    return (sys.executable, "-S", "-E", str(SERVER), *(str(option) for option in options))


@contextmanager
def http_url(*options: object) -> Generator[str]:
    """Run the lean server over HTTP; yield its URL; its process group is killed at the end."""
    command = server_command("--http", *options)
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            if not select.select([process.stdout], [], [], 15)[0]:
                raise RuntimeError("the HTTP server did not start within 15 s")
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def payload_server() -> Any:
    """Return an in-process server on the SDK with the tool `payload`."""
    import mcp_types as types
    from mcp.server import Server, ServerRequestContext

    schema: dict[str, Any] = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}

    async def on_list_tools(ctx: ServerRequestContext[Any, Any], params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="payload", input_schema=schema)])

    async def on_call_tool(
        ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        text = "x" * int((params.arguments or {})["size"])
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    return Server("bench", on_list_tools=on_list_tools, on_call_tool=on_call_tool)


@cache
def available(module: str) -> bool:
    """Whether a module imports; says so on standard error when it exists and does not."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        if error.name != module:
            sys.stderr.write(f"{module} does not import, its rows are left out: {error}\n")
        return False
    return True


@cache
def ours() -> Any:
    """Return `connect_mcp`, or None with a message while it does not import."""
    try:
        from toolweave.connect import connect_mcp
    except ImportError as error:
        sys.stderr.write(f"toolweave.connect does not import, its rows are left out: {error}\n")
        return None
    return connect_mcp


async def open_raw(stack: AsyncExitStack, target: Target) -> list[Open]:
    """Connect the baseline."""
    if target.server is not None:
        raw = RawInProcess()

        async def nothing() -> int:
            return 0

        return [Open(name="raw", call=raw.call_tool, list_all=nothing)]
    if target.url:
        client = RawHttp(target.url, modern=target.modern)
        await client.start()
    else:
        client = RawStdio(modern=target.modern)
        await client.start(target.command)
    stack.push_async_callback(client.close)

    async def list_all() -> int:
        return len(await client.list_tools())

    return [Open(name="raw", call=client.call_tool, list_all=list_all)]


async def open_sdk(stack: AsyncExitStack, target: Target) -> list[Open]:
    """Connect the SDK's `Client`."""
    from mcp import Client, StdioServerParameters

    where: Any = target.server or target.url
    if target.command:
        where = StdioServerParameters(command=target.command[0], args=list(target.command[1:]))
    client = await stack.enter_async_context(Client(where, mode="auto" if target.modern else "legacy", cache=None))

    async def list_all() -> int:
        page = await client.list_tools()
        count = len(page.tools)
        while page.next_cursor is not None:
            page = await client.list_tools(cursor=page.next_cursor)
            count += len(page.tools)
        return count

    await list_all()
    return [Open(name="sdk", call=client.call_tool, list_all=list_all)]


async def open_ours(stack: AsyncExitStack, target: Target) -> list[Open]:
    """Connect Toolweave: `McpConnection.call_tool`, and `Tool.execute` on the listed tool."""
    connect_mcp = ours()
    if connect_mcp is None:
        return []
    where: Any = target.server or target.url or {"command": target.command[0], "args": list(target.command[1:])}
    connection = await stack.enter_async_context(connect_mcp(where, name="bench"))
    tools = await connection.list_tools()

    async def execute(name: str, arguments: dict[str, Any]) -> object:
        return await tools[name].execute(arguments)

    async def list_all() -> int:
        await connection.refresh()
        return len(await connection.list_tools())

    return [
        Open(name="toolweave call_tool", call=connection.call_tool, list_all=list_all),
        Open(name="toolweave execute", call=execute, list_all=list_all),
    ]


async def open_fastmcp(stack: AsyncExitStack, target: Target) -> list[Open]:
    """Connect FastMCP's client, when it is installed."""
    if not available("fastmcp") or target.server is not None:
        return []
    fastmcp = importlib.import_module("fastmcp")
    transports = importlib.import_module("fastmcp.client.transports")
    where: Any = target.url
    if target.command:
        where = transports.StdioTransport(command=target.command[0], args=list(target.command[1:]))
    client = await stack.enter_async_context(fastmcp.Client(where))

    async def list_all() -> int:
        return len(await client.list_tools())

    await list_all()
    return [Open(name="fastmcp", call=client.call_tool, list_all=list_all)]


@asynccontextmanager
async def open_clients(transport: str, *options: object) -> AsyncGenerator[list[Open]]:
    """Connect every client over one transport, each to a server of its own where that is a process."""
    modern = transport.endswith("modern") or transport == "in-process"
    options = ("--era", "modern" if modern else "legacy", *options)
    async with AsyncExitStack() as stack:
        if transport == "in-process":
            target = Target(modern=modern, server=payload_server())
        elif transport.startswith("http"):
            target = Target(modern=modern, url=stack.enter_context(http_url(*options)))
        else:
            target = Target(modern=modern, command=server_command(*options))
        yield [
            client for opener in (open_raw, open_sdk, open_ours, open_fastmcp) for client in await opener(stack, target)
        ]
