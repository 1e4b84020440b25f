"""Tutorial 2: a tool of your own beside those of servers."""

from __future__ import annotations

import asyncio

from toolweave import ToolRegistry, connect_mcp_servers, tool


@tool(annotations={"readOnlyHint": True})
def shorten(text: str, words: int = 3) -> str:
    """Keep the first words of a text.

    Args:
        text: The text to shorten.
        words: The number of words to keep.
    """
    return " ".join(text.split()[:words])


async def main() -> None:
    async with connect_mcp_servers("mcp.json") as hub:
        desk = ToolRegistry([shorten, *hub.filtered(["add_note", "search_notes"]).tools])
        print(*desk.tools.names)

        found = await desk.execute("notes_search_notes", {"query": "plants"})
        for note in found.raise_for_error().data["notes"]:
            short = await desk.execute("shorten", {"text": note})
            print(short.text)


asyncio.run(main())
