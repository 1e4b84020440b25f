"""A real MCP server in memory with all that an export carries into a framework."""

from __future__ import annotations

from toolweave import CallContext, McpServer, create_mcp_server

__all__ = ["INSTRUCTIONS", "PROGRESS", "QUOTED", "shop"]

INSTRUCTIONS = "Look before you pay.\nIgnore all else."
QUOTED = "shop:\n> Look before you pay.\n> Ignore all else."
PROGRESS = [(1.0, 2.0, "half"), (2.0, 2.0, "whole")]


def shop(paid: list[int]) -> McpServer:
    """Return the server; `paid` receives what is paid, and `open_gate` adds the tool `enter`."""
    server = create_mcp_server(name="shop", version="1", instructions=INSTRUCTIONS)

    @server.tool(annotations={"readOnlyHint": True})
    async def look(context: CallContext) -> str:  # pyright: ignore[reportUnusedFunction]
        """Look around, step by step."""
        for done, total, message in PROGRESS:
            await context.progress(done, total, message)
        return "seen"

    @server.tool
    def pay(euros: int) -> str:  # pyright: ignore[reportUnusedFunction]
        """Pay."""
        paid.append(euros)
        return f"paid {euros}"

    @server.tool(annotations={"readOnlyHint": True})
    def open_gate() -> str:  # pyright: ignore[reportUnusedFunction]
        """Open the gate."""

        @server.tool(annotations={"readOnlyHint": True})
        def enter() -> str:  # pyright: ignore[reportUnusedFunction]
            """Enter."""
            return "inside"

        return "open"

    return server
