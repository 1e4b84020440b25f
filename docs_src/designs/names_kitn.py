"""kitn: several named servers, tools found under `server:tool`, refreshed on demand."""

from __future__ import annotations

import asyncio

from toolweave import connect_mcp_servers

servers = [
    {"name": "notes", "transport": {"type": "stdio", "command": "python", "args": ["-m", "toolweave.cli.demo.notes"]}},
    {
        "name": "numbers",
        "transport": {"type": "stdio", "command": "python", "args": ["-m", "toolweave.cli.demo.numbers"]},
    },
]


async def main() -> None:
    async with connect_mcp_servers({"servers": servers}, on_error="raise") as connection:
        print(list(connection.clients))
        print((await connection.execute("numbers:add", {"values": [20, 22]})).text)
        print(bool(await connection.refresh("numbers")))


asyncio.run(main())
