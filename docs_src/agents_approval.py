"""A person allows one call and denies another."""

from __future__ import annotations

import asyncio

from toolweave import Agent, ScriptedModel, tool, tool_call
from toolweave.agent import ApprovalRequested
from toolweave.models import ToolMessage


@tool(annotations={"destructiveHint": True})
def delete(path: str) -> str:
    """Delete a file."""
    return f"{path} is deleted"


@tool(annotations={"readOnlyHint": True})
def files() -> list[str]:
    """List the files."""
    return ["old.txt", "thesis.txt"]


calls = [tool_call("files"), tool_call("delete", {"path": "old.txt"}), tool_call("delete", {"path": "thesis.txt"})]


async def main() -> None:
    agent = Agent(ScriptedModel([calls, "I kept the thesis."]), tools=[files, delete], confirm="destructive")
    run = agent.send("Clean up.")
    async for event in run:
        if isinstance(event, ApprovalRequested):
            if event.call.arguments["path"] == "old.txt":
                run.approve(event)
            else:
                run.deny(event, reason="that one is needed")
    result = await run
    for message in result.messages:
        if isinstance(message, ToolMessage):
            print(*(outcome.result.text for outcome in message.outcomes), sep="\n")
    print(result.text)


asyncio.run(main())
