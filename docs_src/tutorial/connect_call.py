"""Tutorial 1: a call, and its progress."""

from __future__ import annotations

import asyncio

from toolweave import Progress, connect_mcp


def show(progress: Progress) -> None:
    if progress.progress == progress.total:
        print(f"{progress.progress:g} of {progress.total:g}")


async def main() -> None:
    async with connect_mcp("python -m toolweave.cli.demo.notes", name="notes") as notes:
        found = await notes.call_tool("search_notes", {"query": "plants"})
        print(found.text)
        print(found.data["notes"][0])

        counted = await notes.call_tool("index_notes", on_progress=show)
        print(counted.data)


asyncio.run(main())
