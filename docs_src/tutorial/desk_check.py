"""Tutorial 4: the server of your own, called in the same process."""

from __future__ import annotations

import asyncio

from toolweave import connect_mcp, create_mcp_server

server = create_mcp_server("desk")


@server.tool(annotations={"readOnlyHint": True})
def shorten(text: str, words: int = 3) -> str:
    """Keep the first words of a text."""
    return " ".join(text.split()[:words])


async def main() -> None:
    async with connect_mcp(server) as desk:
        print((await desk.call_tool("shorten", {"text": "the plants like rain water"})).text)
        print((await desk.call_tool("shorten", {"text": "the plants", "words": "two"})).text)


asyncio.run(main())
