import asyncio

from fastmcp import Client, FastMCP

mcp = FastMCP("geometry")


@mcp.tool
def area(width: float, height: float) -> float:
    """Return the area of a rectangle."""
    return width * height


async def main() -> None:
    async with Client(mcp) as client:
        result = await client.call_tool("area", {"width": 3, "height": 4})
        print(result.data)


asyncio.run(main())
