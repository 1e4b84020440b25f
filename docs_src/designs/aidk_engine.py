"""AIDK, the engine: servers in the agent's own configuration, connected when it works."""

from __future__ import annotations

import asyncio

from toolweave import Agent, TextContent
from toolweave.models import ScriptedModel, UserMessage, tool_call

agent = Agent(
    ScriptedModel(
        [[tool_call("notes_search_notes", {"query": "warp"}), tool_call("numbers_add", {"values": [1, 2]})], "done"]
    ),
    mcp_servers={
        "notes": {"command": "python", "args": ["-m", "toolweave.cli.demo.notes"]},
        "numbers": {"command": "python", "args": ["-m", "toolweave.cli.demo.numbers"]},
    },  # or "mcp.json", or any other editor's file
)


async def main() -> None:
    result = await agent.send([UserMessage(content=(TextContent(text="Look for the warp, and add 1 and 2"),))])
    print(result.text, "after", result.steps, "steps")
    print(agent.errors)


asyncio.run(main())
