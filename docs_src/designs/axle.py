"""Axle: connections whose tools go to an agent beside functions; send, generate, stream; prompts and files."""

from __future__ import annotations

import asyncio

from toolweave import Agent, Prompt, connect_mcp, generate, stream
from toolweave.agent import TextDelta, ToolStarted
from toolweave.models import ScriptedModel, UserMessage, tool_call

notes_config = {"transport": "stdio", "command": "python", "args": ["-m", "toolweave.cli.demo.notes"]}
numbers_config = {"transport": "stdio", "command": "python", "args": ["-m", "toolweave.cli.demo.numbers"]}


def today() -> str:
    """Say what day it is."""
    return "Monday"


async def main() -> None:
    notes = await connect_mcp(notes_config)
    numbers = await connect_mcp(numbers_config)
    try:
        # region agent
        model = ScriptedModel([[tool_call("math_add", {"values": [40, 2]}), tool_call("today")], "42, on a Monday"])
        agent = Agent(
            model,  # or "anthropic:claude-sonnet-4-5", "openai:...", "http://localhost:11434/v1#qwen3"
            tools=[today, *await notes.list_tools(prefix="notes"), *await numbers.list_tools(prefix="math")],
        )
        result = await agent.send("What is 40 + 2, and what day is it?").final
        print(result.text)
        # endregion

        # region loop
        tools = await numbers.list_tools()
        turns = [tool_call("divide", {"value": 9, "by": 3}), "it is 3"]
        print((await generate(ScriptedModel(turns), "What is 9 / 3?", tools=tools)).text)

        async for event in stream(ScriptedModel(turns), "What is 9 / 3?", tools=tools):
            if isinstance(event, ToolStarted):
                print("calls", event.tool.name)
            elif isinstance(event, TextDelta):
                print(event.text, end="")
        print()
        # endregion

        # region instruct
        prompt = Prompt.from_mcp(await notes.get_prompt("review", {"topic": "weaving"}), "Answer in {{words}} words.")
        prompt.variables["words"] = 3
        prompt.add_file(await notes.read_resource("notes://all"), name="all.md")
        for message in prompt.messages():
            if isinstance(message, UserMessage):
                print(message.text)
        # endregion
    finally:
        await notes.close()
        await numbers.close()


asyncio.run(main())
