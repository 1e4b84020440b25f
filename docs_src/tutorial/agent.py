"""Tutorial 3: a model that uses the tools, and asks before it changes something."""

from __future__ import annotations

import asyncio

from toolweave import Agent, ScriptedModel, connect_mcp_servers, tool, tool_call
from toolweave.agent import ApprovalRequested, ToolFinished

# With an API key, replace this with a name: "anthropic:claude-sonnet-4-5", "openai:gpt-5.1" or "ollama:qwen3".
model = ScriptedModel(
    [
        [tool_call("notes_search_notes", {"query": "plants"})],
        [tool_call("shorten", {"text": "the plants like rain water"})],
        [tool_call("notes_add_note", {"text": "collect rain water"})],
        "You have two notes about plants. I added a third.",
    ]
)


@tool(annotations={"readOnlyHint": True})
def shorten(text: str, words: int = 3) -> str:
    """Keep the first words of a text."""
    return " ".join(text.split()[:words])


async def main() -> None:
    async with connect_mcp_servers("mcp.json") as hub:
        agent = Agent(model, system="You manage my notes.", tools=[hub, shorten], confirm="destructive", max_steps=10)
        run = agent.send("What do I know about plants? Add what is missing.")
        async for event in run:
            match event:
                case ToolFinished(call=call, result=result):
                    print(f"{call.name}: {result.text}")
                case ApprovalRequested(call=call):
                    print(f"approved: {call.name} {dict(call.arguments)}")
                    run.approve(event)
                case _:
                    pass
        print((await run).text)


asyncio.run(main())
