"""An agent with a function and the tools of a server."""

from __future__ import annotations

import asyncio

from toolweave import Agent, ScriptedModel, tool_call


def area(width: float, height: float) -> float:
    """Return the area of a rectangle, in square metres."""
    return width * height


# This model follows a script. With a key: "anthropic:claude-sonnet-4-5", "openai:gpt-5.1", "ollama:qwen3"
model = ScriptedModel(
    [
        [tool_call("area", {"width": 3, "height": 4}), tool_call("numbers_add", {"values": [1, 2, 39]})],
        "The room has 12 square metres, and the sum is 42.",
    ]
)


async def main() -> None:
    numbers = {"command": "python", "args": ["-m", "toolweave.cli.demo.numbers"]}
    agent = Agent(model, system="Be brief.", tools=[area], mcp_servers={"numbers": numbers})
    result = await agent.send("How large is a room of 3 by 4? And what is 1 + 2 + 39?")
    print(result.text)


asyncio.run(main())
