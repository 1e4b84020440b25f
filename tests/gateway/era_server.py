"""A server of both eras on the official SDK, with features that work in one of them alone: `era_server.py [--port N]`.

Over stdio without a port. Asserts nothing.
"""

from __future__ import annotations

import argparse
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp_types import ElicitRequestURLParams
from pydantic import BaseModel

__all__: list[str] = []


class Form(BaseModel):
    """The answer to a question."""

    name: str


def made() -> MCPServer:
    """Return the server."""
    server = MCPServer("eras", log_level="ERROR")
    leading: list[Any] = []

    @server.tool()
    def era(ctx: Context[Any, Any]) -> str:
        """Return the revision in which the tool was called."""
        return ctx.request_context.protocol_version

    @server.tool()
    async def ask(ctx: Context[Any, Any]) -> str:
        """Send the client a request, which modern revisions do not have."""
        answer = await ctx.session.elicit_form("Who?", Form.model_json_schema(), related_request_id=ctx.request_id)
        return f"{answer.action}: {answer.content}"

    @server.tool()
    async def grow(ctx: Context[Any, Any]) -> str:
        """Add a tool, and announce it in the session of the caller alone."""

        def grown() -> str:
            """Return a word."""
            return "grown"

        server.add_tool(grown)
        await ctx.session.send_tool_list_changed()
        return "grown"

    @server.tool()
    async def page(ctx: Context[Any, Any]) -> str:
        """Lead the client to a page, which it visits at once."""
        needed = ElicitRequestURLParams(message="Look", url="https://example.com/a", elicitation_id="the-page")
        leading.append(ctx.session)
        raise UrlElicitationRequiredError([needed])

    @server.tool()
    async def visited() -> str:
        """Report that the page was visited, in the session that was led to it."""
        await leading[-1].send_elicit_complete("the-page")
        return "reported"

    return server


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int)
    port: int | None = parser.parse_args().port
    if port is None:
        made().run()
    else:
        made().run(transport="streamable-http", port=port)


if __name__ == "__main__":
    main()
