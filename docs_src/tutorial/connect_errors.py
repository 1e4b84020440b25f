"""Tutorial 1: errors of a tool, of its arguments and of a server."""

from __future__ import annotations

import asyncio

from toolweave import ConnectError, connect_mcp


async def main() -> None:
    async with connect_mcp("python -m toolweave.cli.demo.notes", name="notes") as notes:
        missing = await notes.call_tool("read_note", {"number": 99})
        print(missing.is_error, missing.text)

        wrong = await notes.call_tool("read_note", {"nummer": 1})
        print(wrong.is_error, wrong.text)

    try:
        await connect_mcp("no-such-program")
    except ConnectError as error:
        print(error)


asyncio.run(main())
