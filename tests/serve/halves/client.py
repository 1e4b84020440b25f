"""The client half by itself: connects to the command that is given, alone and through a hub."""

from __future__ import annotations

import sys

import anyio

from toolweave import connect_mcp, connect_mcp_servers


async def main() -> None:
    server = {"command": sys.argv[1], "args": sys.argv[2:]}
    async with connect_mcp(server) as connection:
        print((await connection.call_tool("add", {"a": 1, "b": 2})).text)
    async with connect_mcp_servers({"sums": server}) as hub:
        print(*(spec.name for spec in hub.snapshot()))


anyio.run(main)
print("serve loaded:", any(name.startswith("toolweave.serve") for name in sys.modules))
