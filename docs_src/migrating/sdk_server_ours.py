import asyncio

from toolweave import CallContext, Progress, ToolError, connect_mcp, create_mcp_server

server = create_mcp_server("greetings")


@server.tool
async def greet(name: str, ctx: CallContext) -> str:
    """Greet a person."""
    if not name:
        raise ToolError("a name is needed")
    await ctx.progress(1, 1, "greeted")
    return f"Hello, {name}!"


def show(progress: Progress) -> None:
    print(progress.message)


async def main() -> None:
    async with connect_mcp(server) as client:
        result = await client.call_tool("greet", {"name": "Ada"}, on_progress=show)
        print(result.text)
        print((await client.call_tool("greet", {"name": ""})).is_error)


if __name__ == "__main__":
    asyncio.run(main())  # as a server: server.run(), or server.run(transport="http", port=8000)
