"""Lists that follow the server: tools that come and go, and a resource that is watched."""

from __future__ import annotations

import asyncio

from toolweave import ToolsChanged, connect_mcp
from toolweave.connect import ResourceUpdated
from toolweave.testing import MemoryServer
from toolweave.tools import changes

shop = MemoryServer(name="shop")
shop.resource("shop://offer", "tea, 3.50")


@shop.tool
def price(item: str) -> str:
    """Say what something costs."""
    return "3.50"


def delivery(city: str) -> str:
    """Say how long a delivery takes."""
    return "two days"


def show(change: ToolsChanged) -> None:
    print("added", change.added, "removed", change.removed)


async def main() -> None:
    async with connect_mcp(shop) as connection:
        # region tools
        connection.on("tools_changed", show)
        following = changes(connection)  # the same, to be iterated over

        shop.tool(delivery)
        await anext(following)
        shop.remove_tool("price")
        await anext(following)
        print([spec.name for spec in connection.snapshot()])
        # endregion

        # region resource
        updated = asyncio.Event()

        def on_update(update: ResourceUpdated) -> None:
            print(update.uri, "missed" if update.missed else "updated")
            updated.set()

        unsubscribe = await connection.subscribe_resource("shop://offer", on_update)
        shop.resource("shop://offer", "milk, 1.20")
        await updated.wait()
        (offer,) = await connection.read_resource("shop://offer")
        print(offer.text)
        unsubscribe()
        # endregion


asyncio.run(main())
