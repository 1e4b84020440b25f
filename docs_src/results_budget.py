"""A result that is too long: the model finds a word in the part that was left out, and reads around it."""

from __future__ import annotations

import asyncio

from toolweave import Agent, ScriptedModel, tool_call
from toolweave.agent import ResultPolicy, ToolFinished


def log() -> str:
    """Return the log of the day."""
    return "\n".join(f"{n:05} {'ERROR disk full' if n == 7000 else 'ok'}" for n in range(10_000))


async def main() -> None:
    find = tool_call("read_tool_result", {"id": "log-1", "search": "error"})
    around = tool_call("read_tool_result", {"id": "log-1", "offset": 63_000, "length": 21})
    model = ScriptedModel([tool_call("log", id="log-1"), find, around, "The disk was full at 7000."])
    agent = Agent(model, tools=[log], result_policy=ResultPolicy(max_chars=1000))
    async for event in agent.send("Did anything go wrong?"):
        if isinstance(event, ToolFinished) and event.call.name == "read_tool_result":
            print(event.result.text)


asyncio.run(main())
