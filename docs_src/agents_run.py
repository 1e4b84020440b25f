"""An agent with a server's command among its tools, in plain code and as a stream of text."""

from __future__ import annotations

import asyncio

from toolweave import Agent, ScriptedModel, tool_call


def area(width: float, height: float) -> float:
    """Return the area of a rectangle, in square metres."""
    return width * height


model = ScriptedModel([[tool_call("add", {"values": [1, 2, 39]})], "It is 42.", "Anything else?"])
agent = Agent(model, tools=[area, "python -m toolweave.cli.demo.numbers"])

print(agent.run_sync("What is 1 + 2 + 39?").text)


async def main() -> None:
    async for text in agent.stream_text("Thank you!"):
        print(text, end="")
    print()


asyncio.run(main())
