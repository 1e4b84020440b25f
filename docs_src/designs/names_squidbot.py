"""squidbot: a config of named servers; what fails to connect is skipped; tools answer, never raise."""

from __future__ import annotations

import asyncio
import logging

from toolweave import ToolRegistry, connect_mcp_servers

logging.getLogger("toolweave").setLevel(logging.ERROR)  # each skipped server is a WARNING

mcp_servers = {
    "numbers": {"transport": "stdio", "command": "python", "args": ["-m", "toolweave.cli.demo.numbers"]},
    "gone": {"transport": "stdio", "command": "no-such-program"},
}


async def main() -> None:
    async with connect_mcp_servers({"tools": {"mcp_servers": mcp_servers}}) as connections:
        registry = ToolRegistry(connections.tools)
        print(list(connections.errors))
        result = await registry.execute("numbers_add", {"values": [40, 2]})
        print(result.is_error, result.text)


asyncio.run(main())
