"""A login that unlocks tools for one caller, and a basket that is kept between its calls."""

from __future__ import annotations

import asyncio

from toolweave import CallContext, ToolError, connect_mcp, create_mcp_server, tool


@tool
async def login(word: str, ctx: CallContext) -> str:
    """Unlock what administrators use."""
    if word != "sesame":
        raise ToolError("that is not the word")
    await ctx.enable(tags={"admin"})
    return "welcome"


@tool
async def put(item: str, ctx: CallContext) -> list[str]:
    """Put something into the basket."""
    basket = [*await ctx.session.get("basket", []), item]
    await ctx.session.set("basket", basket)
    return basket


@tool(tags={"admin"})
def close_shop() -> str:
    """Close the shop."""
    return "closed"


server = create_mcp_server("shop", tools=[login, put, close_shop])
server.disable(tags={"admin"})


async def main() -> None:
    visitor = {"server": server, "protocol": "2025-11-25"}
    async with connect_mcp(visitor) as ada, connect_mcp(visitor) as bob:
        await ada.call_tool("login", {"word": "sesame"})
        for who in (ada, bob):
            await who.refresh()
            print((await who.list_tools()).names)

        await ada.call_tool("put", {"item": "milk"})
        print((await ada.call_tool("put", {"item": "tea"})).text)
        print((await bob.call_tool("put", {"item": "soap"})).text)


asyncio.run(main())
