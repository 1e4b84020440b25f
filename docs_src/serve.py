"""The smallest server."""

from __future__ import annotations

from toolweave import create_mcp_server, tool


@tool(annotations={"readOnlyHint": True})
def area(width: float, height: float = 1.0) -> float:
    """Return the area of a rectangle, in square metres."""
    return width * height


server = create_mcp_server("geometry", tools=[area])

if __name__ == "__main__":
    server.run()  # over stdio; over HTTP: server.run(transport="http", port=8000)
