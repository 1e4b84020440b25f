"""Serve a tool with a page for its result, and one that only the page calls."""

from __future__ import annotations

import asyncio

from toolweave import Agent, connect_mcp, create_mcp_server, tool
from toolweave.models import ScriptedModel
from toolweave.serve import AppCsp, app

board = app(
    "ui://notes/board",
    "<!doctype html><title>Notes</title><script src='https://cdn.example/board.js'></script>",
    csp=AppCsp(resource_domains=["https://cdn.example"]),
    prefers_border=True,
)


@tool(meta=board.tool_meta())
def show_notes() -> dict[str, list[str]]:
    """Show all notes."""
    return {"notes": ["water the plants"]}


@tool(meta=board.tool_meta("app"))
def strike_out(number: int) -> str:
    """Strike a note out."""
    return f"note {number} is done"


server = create_mcp_server("notes", tools=[show_notes, strike_out], resources=[board])


async def main() -> None:
    async with connect_mcp(server) as client:
        for spec in await client.list_tools():
            print(spec.name, spec.raw["_meta"]["ui"])
        (page,) = await client.read_resource("ui://notes/board")
        print(page.mime_type, page.meta["ui"])

        agent = Agent(ScriptedModel(["hello"]), tools=client)
        print(agent.tools.snapshot().by_name.keys())


asyncio.run(main())
