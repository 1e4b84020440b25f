"""Two servers on the official SDK, for tests that compare with it: `MCPServer` and the low-level `Server`.

Run as a script over stdio, or with `--http PORT` over Streamable HTTP (prints the port as the first line).
In-process tests import `high_level()` and `low_level()`.
"""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import mcp_types as types
import uvicorn
from mcp.server import Server, ServerRequestContext
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field

__all__ = ["high_level", "low_level", "main"]


class City(BaseModel):
    """A place to ask about."""

    name: str = Field(description="The city's name")
    country: str = Field(default="NO", min_length=2, max_length=2)


class Forecast(BaseModel):
    """What `forecast` returns."""

    city: City
    degrees: list[float]
    unit: Literal["C", "F"]


def high_level() -> MCPServer:
    """Return a server with typed tools, structured output, progress and logging."""
    server = MCPServer("sdk-high", version="2.0.0", instructions="Ask for a forecast.", log_level="ERROR")

    @server.tool(title="Forecast", annotations=types.ToolAnnotations(read_only_hint=True))
    def forecast(
        city: City, days: Annotated[int, Field(ge=1, le=7, description="How many")] = 3, unit: Literal["C", "F"] = "C"
    ) -> Forecast:
        """Forecast the temperature of a city."""
        return Forecast(city=city, degrees=[float(day) for day in range(days)], unit=unit)

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    async def steps(count: int, ctx: Context[Any, Any]) -> str:
        """Report progress `count` times and log once."""
        for number in range(1, count + 1):
            await ctx.report_progress(number, count, f"step {number}")
        await ctx.info("all steps done")  # pyright: ignore[reportDeprecated] - servers of all eras log
        return "done"

    @server.tool()
    def refuse(reason: str) -> str:
        """Fail in words the caller may see."""
        raise ToolError(reason)

    @server.tool()
    def boom() -> str:
        """Fail with an exception the caller must not see."""
        raise RuntimeError("secret detail")

    @server.resource("sdk://greeting", mime_type="text/plain")
    def greeting() -> str:
        """A text."""
        return "hello"

    @server.resource("sdk://item/{number}")
    def item(number: str) -> str:
        """One item."""
        return f"item {number}"

    @server.prompt()
    def ask(topic: str) -> str:
        """Ask about a topic."""
        return f"Tell me about {topic}."

    return server


def low_level() -> Server[Any]:
    """Return a server whose schemas and results are written by hand."""
    schema: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    listed = [
        types.Tool(name="echo", description="Return the text", input_schema=schema),
        types.Tool(name="rows", description="Return rows", input_schema={"type": "object"}),
    ]

    async def on_list_tools(
        ctx: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        start = int(params.cursor) if params is not None and params.cursor is not None else 0
        following = str(start + 1) if start + 1 < len(listed) else None
        return types.ListToolsResult(tools=listed[start : start + 1], next_cursor=following)

    async def on_call_tool(
        ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        arguments = params.arguments or {}
        if params.name == "echo":
            return types.CallToolResult(content=[types.TextContent(type="text", text=str(arguments["text"]))])
        if params.name == "rows":
            return types.CallToolResult(content=[], structured_content={"rows": [1, 2, 3]})
        raise MCPError(-32602, f"Unknown tool: {params.name}")

    return Server("sdk-low", version="2.0.0", on_list_tools=on_list_tools, on_call_tool=on_call_tool)


def serve_http(server: MCPServer | Server[Any], port: int) -> None:
    """Serve over Streamable HTTP at /mcp."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run(sockets=[listener])


async def serve_stdio(server: Server[Any]) -> None:
    """Serve the low-level server on standard input and output."""
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def made(kind: str) -> Server[Any]:
    """Return a low-level server."""
    if kind == "low":
        return low_level()
    sys.path.append(str(Path(__file__).parents[2]))  # run as a script, it is in no package
    from tests.servers.sdk_asking import asking

    return asking()


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=["high", "low", "asking"], default="high")
    parser.add_argument("--http", type=int, metavar="PORT", help="0: any free port, printed as the first line")
    options = parser.parse_args()
    if options.http is not None:
        serve_http(high_level() if options.kind == "high" else made(options.kind), options.http)
    elif options.kind == "high":
        high_level().run("stdio")
    else:
        anyio.run(serve_stdio, made(options.kind))


if __name__ == "__main__":
    main()
