"""AIDK: normalized and merged configs, discovery with filters over a shared client."""

from __future__ import annotations

import asyncio

from toolweave import connect_mcp_servers, discover_mcp_tools
from toolweave.config import merge_config, normalize_config


async def main() -> None:
    cursor = {"command": "python", "args": ["-m", "toolweave.cli.demo.notes"]}
    config = merge_config(normalize_config("notes", cursor), {"connection": {"env": {"TZ": "UTC"}}})

    async with connect_mcp_servers({}) as client:
        found = await discover_mcp_tools(config, client=client, tool_prefix="n_", include=["add_note", "search_notes"])
        print(found.names)

        added = await found["n_add_note"].execute({"text": "wind the warp"})
        print(added.is_error)

        print(list(client.clients))
        await client.disconnect("notes")
        print(len(client.tools))


asyncio.run(main())
