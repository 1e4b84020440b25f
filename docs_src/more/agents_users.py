"""One server, a connection of each user's own."""

from __future__ import annotations

import asyncio

from toolweave import Agent, McpPool, McpTools, ScriptedModel, tool_call

numbers = {"command": "python", "args": ["-m", "toolweave.cli.demo.numbers"]}


async def main() -> None:
    call = tool_call("add", {"values": [40, 2]})
    agent = Agent(ScriptedModel([[call], "42, Ada.", [call], "42, Bob."]))
    # region users
    async with McpPool() as pool:
        for user in ("ada", "bob"):
            tools = McpTools("numbers", numbers, client=pool, include=["add"], runtime_config={"env": {"USER": user}})
            result = await agent.send("What is 40 + 2?", tools=tools)
            print(result.text)
    # endregion


asyncio.run(main())
