"""Many servers from any editor's config file; one that cannot start costs nobody else anything."""

from __future__ import annotations

import asyncio

from toolweave import connect_mcp_servers


async def main() -> None:
    async with connect_mcp_servers("mcp.json") as hub:
        for tool in hub.tools:
            print(f"{tool.name:20} {tool.description}")
        print("failed:", *hub.errors)

        result = await hub.execute("numbers_divide", {"value": 1, "by": 0})
        print(result.is_error, result.text)


asyncio.run(main())
