"""Many servers as one: their tools, resources and prompts behind one endpoint."""

from __future__ import annotations

import asyncio

from toolweave import Hub, connect_mcp
from toolweave.compose import hub_server


async def main() -> None:
    hub = Hub("mcp.json", wait=20)
    server = hub_server(hub, name="everything", version="1.0.0", exclude=["add_note"])
    async with connect_mcp(server) as client:
        print(*(await client.list_tools()).names, sep="\n")
        print([resource.uri for resource in await client.list_resources()])
        print([prompt.name for prompt in await client.list_prompts()])
        print("failed:", *hub.errors)


asyncio.run(main())
