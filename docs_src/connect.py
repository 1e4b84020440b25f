"""One server: connect, list, call."""

from __future__ import annotations

import asyncio

from toolweave import connect_mcp


async def main() -> None:
    server = {"command": "python", "args": ["-m", "toolweave.cli.demo.numbers"]}
    async with connect_mcp(server, name="numbers") as numbers:
        tools = await numbers.list_tools(prefix="math")
        result = await tools["math_add"].execute({"values": [1, 2, 39]})
        print(result.raise_for_error().data.sum)


asyncio.run(main())
