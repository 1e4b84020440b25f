from toolweave import create_mcp_server

server = create_mcp_server("geometry")


@server.tool
def area(width: float, height: float) -> float:
    """Return the area of a rectangle."""
    return width * height


if __name__ == "__main__":
    server.run()
