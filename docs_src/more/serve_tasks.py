"""A call that takes long is a task for clients that know tasks, and a plain call for the others."""

from __future__ import annotations

import asyncio

from toolweave import CallContext, connect_mcp, create_mcp_server, tool


@tool
async def index(ctx: CallContext) -> str:
    """Count everything."""
    for step in range(3):
        await ctx.progress(step + 1, total=3)
    return "42 things"


server = create_mcp_server(name="slow", version="1.0.0", tools=[index], tasks={"index": "optional"})


async def main() -> None:
    async with connect_mcp(server) as client:
        print(client.capabilities["extensions"])
        print((await client.call_tool("index")).text)  # becomes a task, and is seen through


asyncio.run(main())
