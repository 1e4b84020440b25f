"""AIDK, programmatic: tools discovered in one step, or a server connected and its tools chosen by hand."""

from __future__ import annotations

import asyncio

from toolweave import Agent, ToolRegistry, connect_mcp_servers, discover_mcp_tools
from toolweave.models import ScriptedModel, tool_call

config = {
    "serverName": "notes",
    "transport": "stdio",
    "connection": {"command": "python", "args": ["-m", "toolweave.cli.demo.notes"]},
}


async def main() -> None:
    # region discover
    async with discover_mcp_tools(config, include=["add_note", "search_notes"], tool_prefix="n_") as tools:
        agent = Agent(ScriptedModel([tool_call("n_add_note", {"text": "wind the warp"}), "noted"]))
        print((await agent.send("Note: wind the warp", tools=tools)).text)
    # endregion

    # region service
    async with connect_mcp_servers({}) as service:
        notes = await service.connect("notes", config)
        safe = [tool for tool in await notes.list_tools() if "add" not in tool.name]
        registry = ToolRegistry()
        for tool in safe:
            registry.add(tool)
        print(registry.list().names)
    # endregion


asyncio.run(main())
