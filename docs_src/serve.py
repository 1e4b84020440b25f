"""A function as an MCP server, for `toolweave serve`."""

from __future__ import annotations

from toolweave import create_mcp_server

server = create_mcp_server("geometry")


@server.tool
def area(width: float, height: float = 1.0) -> float:
    """Return the area of a rectangle, in square metres."""
    return width * height
