"""A gateway before two servers: what its callers see, and how they read that a third one is down."""

from __future__ import annotations

import asyncio

from toolweave import connect_mcp
from toolweave.gateway import create_gateway


async def main() -> None:
    gateway = create_gateway("mcp.json", name="everything", version="1.0.0")
    async with connect_mcp(gateway) as client:
        print(*(await client.list_tools()).names, sep="\n")
        print([resource.uri for resource in await client.list_resources()])
        print((await client.call_tool("numbers_add", {"values": [1, 41]})).text)
        print(sorted(client.capabilities))

        page = await client.request("tools/list")
        for server, status in page["_meta"]["io.toolweave/upstreams"].items():
            print(server, status)


asyncio.run(main())
