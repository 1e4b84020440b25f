import asyncio

from mcp import Client
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

mcp = MCPServer("greetings")


@mcp.tool()
async def greet(name: str, ctx: Context) -> str:
    """Greet a person."""
    if not name:
        raise ToolError("a name is needed")
    await ctx.report_progress(1, 1, "greeted")
    return f"Hello, {name}!"


async def show(progress: float, total: float | None, message: str | None) -> None:
    print(message)


async def main() -> None:
    async with Client(mcp) as client:
        result = await client.call_tool("greet", {"name": "Ada"}, progress_callback=show)
        print(result.content[0].text)
        print((await client.call_tool("greet", {"name": ""})).is_error)


if __name__ == "__main__":
    asyncio.run(main())  # as a server: mcp.run(), or mcp.run("streamable-http", port=8000)
