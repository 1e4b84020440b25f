"""Tutorial 1: the tools of one server."""

from __future__ import annotations

import asyncio

from toolweave import connect_mcp


async def main() -> None:
    async with connect_mcp("python -m toolweave.cli.demo.notes", name="notes") as notes:
        for tool in notes.tools:
            print(f"{tool.name:14} {tool.description}")


asyncio.run(main())
