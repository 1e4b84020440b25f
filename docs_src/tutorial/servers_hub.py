"""Tutorial 2: every server of a config file."""

from __future__ import annotations

import asyncio

from toolweave import connect_mcp_servers


async def main() -> None:
    async with connect_mcp_servers("mcp.json") as hub:
        print(*hub.tools.names, sep="\n")
        for name, error in hub.errors.items():
            print(f"{name}: {error}")

        found = await hub.execute("notes_search_notes", {"query": "plants"})
        notes = found.raise_for_error().data["notes"]
        lengths = [len(note.split()) for note in notes]
        total = await hub.execute("numbers_add", {"values": lengths})
        print(f"{len(notes)} notes with {total.data.sum:g} words")


asyncio.run(main())
