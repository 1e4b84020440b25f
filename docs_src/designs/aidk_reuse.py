"""AIDK, reuse: a component written once, and several components over one client."""

from __future__ import annotations

import asyncio

from toolweave import Agent, McpTools, connect_mcp_servers, mcp_component
from toolweave.models import ScriptedModel, tool_call

NOTES = {"command": "python", "args": ["-m", "toolweave.cli.demo.notes"]}
NUMBERS = {"command": "python", "args": ["-m", "toolweave.cli.demo.numbers"]}

# region factory
SearchNotes = mcp_component("notes", NOTES, tool_name="search_notes")  # this tool alone

reviewer = Agent(ScriptedModel([tool_call("search_notes", {"query": "warp"}), "reviewed"]), tools=[SearchNotes()])
# endregion


async def main() -> None:
    print((await reviewer.send("Review my notes about the warp")).text)

    # region shared
    async with connect_mcp_servers({}) as shared:
        components = [McpTools("notes", NOTES, client=shared), McpTools("numbers", NUMBERS, client=shared)]
        agent = Agent(ScriptedModel([tool_call("add", {"values": [2, 3]}), "5"]), tools=components)
        print((await agent.send("2 + 3?")).text)
        print(
            [f"{name}: {client.state.value}" for name, client in shared.clients.items()]
        )  # whoever opened it closes it
    # endregion


asyncio.run(main())
