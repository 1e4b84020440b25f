"""A result that a model and a person read differently."""

from __future__ import annotations

import asyncio

from toolweave import Agent, ScriptedModel, TextContent, ToolResult, tool, tool_call
from toolweave.agent import ToolFinished


@tool
def sales() -> ToolResult:
    """Report the sales of the week."""
    table = TextContent(text="Mon 3 | Tue 5 | Wed 4", annotations={"audience": ["user"]})
    advice = TextContent(text="Do not repeat the table.", annotations={"audience": ["assistant"]})
    return ToolResult(content=(table, advice), structured_content={"sum": 12})


async def main() -> None:
    model = ScriptedModel([tool_call("sales"), "There it is: 12 in all."])
    async for event in Agent(model, tools=[sales]).send("What did we sell?"):
        if isinstance(event, ToolFinished):
            print("the person:", event.result.for_person().text)
            print("the model: ", event.result.for_model().text)


asyncio.run(main())
