from fastmcp import FastMCP

mcp = FastMCP("geometry")


@mcp.tool
def area(width: float, height: float) -> float:
    """Return the area of a rectangle."""
    return width * height


if __name__ == "__main__":
    mcp.run()
