"""Toolsets are wrapped in a chain: fewer tools, other names."""

from __future__ import annotations

import asyncio

from toolweave import connect_mcp_servers


async def main() -> None:
    async with connect_mcp_servers("mcp.json") as hub:
        maths = hub.filtered(["add", "divide"]).prefixed("math").renamed({"math_numbers_add": "sum"})
        print(maths.tools.names)
        print((await maths.execute("sum", {"values": [1, 2, 39]})).text)


asyncio.run(main())
