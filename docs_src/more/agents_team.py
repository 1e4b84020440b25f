"""An agent as a tool of another, and a tool that makes many calls of another."""

from __future__ import annotations

import asyncio

from toolweave import Agent, ScriptedModel, tool, tool_call
from toolweave.agent import ChildFinished, ChildStarted, parallelize


@tool
def lookup(word: str) -> str:
    """Look a word up."""
    return f"{word}: a thing"


async def main() -> None:
    words = {"calls": [{"word": "loom"}, {"word": "weft"}]}
    reader = Agent(
        ScriptedModel([[tool_call("parallel_lookup", words)], "A loom holds the weft."]),
        name="reader",
        description="Knows words.",
        tools=[parallelize(lookup)],
    )
    writer = Agent(
        ScriptedModel([[tool_call("agent_reader", {"message": "What is a loom?"})], "I have asked."]),
        tools=[reader.as_tool()],
    )
    run = writer.send("Write about looms.")
    async for event in run:
        if isinstance(event, ChildStarted):
            print(f"{event.agent} begins")
        elif isinstance(event, ChildFinished):
            print(f"{event.result.text!r} after {event.result.steps} turns")
    print((await run).text)


asyncio.run(main())
