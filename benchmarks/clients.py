"""The contenders: how each client connects, calls a tool and lists all tools. Every import waits for its client.

A client runs in a process of its own (`worker.py`), with its own packages where it is a peer in another environment.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

__all__ = ["CLIENTS", "Client", "Open", "Target"]

Caller = Callable[[str, dict[str, Any]], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A connected client that has listed the tools once; `kept` is what it must keep of them.

    `list_all` asks for all of them again and returns how many there are.
    """

    call: Caller
    list_all: Callable[[], Awaitable[int]]
    kept: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a client shall connect to: a command or a URL."""

    modern: bool
    command: tuple[str, ...] = ()
    url: str = ""


_NO_CONFIG: Mapping[str, object] = {}
Opener = Callable[[AsyncExitStack, Target], Awaitable[Open]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One contender.

    Attributes:
        module: It is left out when this does not import.
        peer: What to install in an environment of its own, for a client that is no dependency of ours.
        modern: Whether it speaks the stateless revisions.
        only: The benchmarks that it takes part in, since it differs from another contender in these alone; empty: all.
    """

    opener: Opener
    module: str
    peer: str | None = None
    uvloop: bool = False
    modern: bool = True
    only: tuple[str, ...] = ()


async def open_raw(stack: AsyncExitStack, target: Target) -> Open:
    """Connect the baseline."""
    from benchmarks.raw import RawHttp, RawStdio

    if target.url:
        client = RawHttp(target.url, modern=target.modern)
        await client.start()
    else:
        client = RawStdio(modern=target.modern)
        await client.start(target.command)
    stack.push_async_callback(client.close)

    async def list_all() -> int:
        return len(await client.list_tools())

    return Open(call=client.call_tool, list_all=list_all, kept=await client.list_tools())


async def open_toolweave(
    stack: AsyncExitStack,
    target: Target,
    *,
    config: Mapping[str, object] = _NO_CONFIG,
    context: Callable[[], Any] = lambda: None,
    **options: Any,
) -> Open:
    """Connect Toolweave; a call is `Tool.execute` of the listed tool, in the context that `context` makes for it."""
    from toolweave.connect import connect_mcp

    where = {"url": target.url} if target.url else {"command": target.command[0], "args": list(target.command[1:])}
    connection = await stack.enter_async_context(connect_mcp({**where, **config}, name="bench", **options))
    tools = await connection.list_tools()

    async def execute(name: str, arguments: dict[str, Any]) -> object:
        result = await tools[name].execute(arguments, context())
        if result.is_error:
            raise RuntimeError(result.text)
        return result

    async def list_all() -> int:
        await connection.refresh()
        return len(await connection.list_tools())

    return Open(call=execute, list_all=list_all, kept=tools)


async def open_toolweave_unscanned(stack: AsyncExitStack, target: Target) -> Open:
    """Connect Toolweave without the scan of definitions and results, which no other client has."""
    return await open_toolweave(stack, target, config={"scan": False})


async def open_toolweave_progress(stack: AsyncExitStack, target: Target) -> Open:
    """Connect Toolweave, and call with a progress callback, as an agent does: each call carries a progress token."""
    from toolweave.tools import CallContext

    def ignore(progress: object) -> None:
        """Ignore what is reported."""

    return await open_toolweave(stack, target, context=lambda: CallContext(on_progress=ignore))


async def open_toolweave_meta(stack: AsyncExitStack, target: Target) -> Open:
    """Connect Toolweave, and call with a `_meta` that differs from call to call, as a trace context does."""
    from toolweave.tools import CallContext

    numbers = itertools.count()

    def context() -> CallContext:
        return CallContext(meta={"traceparent": f"00-{next(numbers):032x}-00f067aa0ba902b7-01"})

    return await open_toolweave(stack, target, context=context)


async def open_toolweave_callbacks(stack: AsyncExitStack, target: Target) -> Open:
    """Connect Toolweave with a callback that answers questions of the server."""
    from toolweave.connect import Callbacks, ElicitationResult

    def decline(_request: object) -> ElicitationResult:
        return ElicitationResult.decline()

    return await open_toolweave(stack, target, callbacks=Callbacks(elicitation=decline))


async def open_sdk(stack: AsyncExitStack, target: Target) -> Open:
    """Connect the SDK's `Client`."""
    mcp: Any = importlib.import_module("mcp")
    where: Any = target.url
    if target.command:
        where = mcp.StdioServerParameters(command=target.command[0], args=list(target.command[1:]))
    mode = "auto" if target.modern else "legacy"
    client = await stack.enter_async_context(mcp.Client(where, mode=mode, cache=None))

    async def tools() -> list[Any]:
        page = await client.list_tools()
        listed: list[Any] = page.tools
        while page.next_cursor is not None:
            page = await client.list_tools(cursor=page.next_cursor)
            listed += page.tools
        return listed

    async def list_all() -> int:
        return len(await tools())

    return Open(call=client.call_tool, list_all=list_all, kept=await tools())


async def open_fastmcp(stack: AsyncExitStack, target: Target) -> Open:
    """Connect FastMCP's client."""
    fastmcp: Any = importlib.import_module("fastmcp")
    transports: Any = importlib.import_module("fastmcp.client.transports")
    where: Any = target.url
    if target.command:
        where = transports.StdioTransport(command=target.command[0], args=list(target.command[1:]))
    client = await stack.enter_async_context(fastmcp.Client(where))

    async def list_all() -> int:
        return len(await client.list_tools())

    return Open(call=client.call_tool, list_all=list_all, kept=await client.list_tools())


async def open_pydantic_ai(stack: AsyncExitStack, target: Target) -> Open:
    """Connect pydantic-ai's toolset."""
    mcp: Any = importlib.import_module("pydantic_ai.mcp")
    where: Any = target.url
    if target.command:
        transports: Any = importlib.import_module("fastmcp.client.transports")
        where = transports.StdioTransport(command=target.command[0], args=list(target.command[1:]))
    toolset = await stack.enter_async_context(mcp.MCPToolset(where, cache_tools=False))

    async def list_all() -> int:
        return len(await toolset.list_tools())

    return Open(call=toolset.direct_call_tool, list_all=list_all, kept=await toolset.list_tools())


async def open_langchain(stack: AsyncExitStack, target: Target) -> Open:
    """Connect langchain-mcp-adapters with one session for all calls."""
    client_module: Any = importlib.import_module("langchain_mcp_adapters.client")
    tools_module: Any = importlib.import_module("langchain_mcp_adapters.tools")
    where: dict[str, Any] = {"transport": "streamable_http", "url": target.url}
    if target.command:
        where = {"transport": "stdio", "command": target.command[0], "args": list(target.command[1:])}
    client = client_module.MultiServerMCPClient({"bench": where})
    session = await stack.enter_async_context(client.session("bench"))
    tools = {tool.name: tool for tool in await tools_module.load_mcp_tools(session)}

    async def call(name: str, arguments: dict[str, Any]) -> object:
        return await tools[name].ainvoke(arguments)

    async def list_all() -> int:
        return len(await tools_module.load_mcp_tools(session))

    return Open(call=call, list_all=list_all, kept=tools)


CLIENTS: Mapping[str, Client] = {
    "raw": Client(opener=open_raw, module="msgspec"),
    "raw uvloop": Client(opener=open_raw, module="uvloop", uvloop=True),
    "toolweave": Client(opener=open_toolweave, module="toolweave"),
    "toolweave uvloop": Client(opener=open_toolweave, module="uvloop", uvloop=True),
    "toolweave scan=false": Client(opener=open_toolweave_unscanned, module="toolweave", only=("calls", "discovery")),
    "toolweave progress": Client(opener=open_toolweave_progress, module="toolweave", only=("calls",)),
    "toolweave meta": Client(opener=open_toolweave_meta, module="toolweave", only=("calls",)),
    "toolweave callbacks": Client(opener=open_toolweave_callbacks, module="toolweave", only=("calls",)),
    "sdk": Client(opener=open_sdk, module="mcp"),
    "fastmcp": Client(opener=open_fastmcp, module="fastmcp", peer="fastmcp uvloop httptools"),
    "pydantic-ai": Client(opener=open_pydantic_ai, module="pydantic_ai", peer="pydantic-ai-slim[mcp]"),
    "langchain": Client(
        opener=open_langchain, module="langchain_mcp_adapters", peer="langchain-mcp-adapters", modern=False
    ),
}
"""Every contender by the name that its rows have; the first is the baseline."""
