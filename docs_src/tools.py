"""Local functions and servers side by side, under one roof."""

from __future__ import annotations

import asyncio

from toolweave import ToolRegistry, connect_mcp, tool


@tool
def area(width: float, height: float = 1.0) -> float:
    """Return the area of a rectangle.

    Args:
        width: In metres.
        height: In metres.
    """
    return width * height


async def main() -> None:
    async with connect_mcp({"command": "python", "args": ["-m", "toolweave.cli.demo.numbers"]}) as numbers:
        registry = ToolRegistry([area, *await numbers.list_tools(prefix="numbers")])
        print(registry.tools.names)
        print((await registry.execute("area", {"width": 3, "height": 4})).text)
        print((await registry.execute("area", {"widht": 3})).text)


asyncio.run(main())
