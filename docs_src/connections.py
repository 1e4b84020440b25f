"""A server that dies in the middle of a call: what the caller is told, and what happens next."""

from __future__ import annotations

import asyncio

from toolweave import ConnectionLostError, connect_mcp
from toolweave.connect import StateChanged
from toolweave.testing import MemoryServer

shop = MemoryServer(name="shop")


@shop.tool
def order(item: str) -> str:
    """Order something."""
    return f"{item} is on its way"


def show(change: StateChanged) -> None:
    print(f"  {change.previous} -> {change.state}")


async def main() -> None:
    async with connect_mcp(shop) as connection:
        connection.on("state", show)
        shop.crash(on="tools/call")
        try:
            await connection.call_tool("order", {"item": "tea"})
        except ConnectionLostError as error:
            print(error.kind, error.retryable)

        result = await connection.call_tool("order", {"item": "milk"})
        print(result.text, connection.restarts)


asyncio.run(main())
