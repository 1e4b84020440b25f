"""What a run says while it goes on."""

from __future__ import annotations

import asyncio

from toolweave import Agent, CallContext, ScriptedModel, tool_call
from toolweave.agent import RunFinished, TextDelta, ToolFinished, ToolProgress, ToolStarted


async def index(ctx: CallContext) -> str:
    """Index all pages."""
    for page in (1, 2):
        await ctx.progress(page, total=2)
    return "2 pages"


async def main() -> None:
    agent = Agent(ScriptedModel([["Let me see.", tool_call("index")], "There are 2 pages."]), tools=[index])
    # region events
    run = agent.send("How many pages are there?")
    async for event in run:
        match event:
            case TextDelta(text=text):
                print(repr(text))
            case ToolStarted(tool=tool, call=call):
                print(f"turn {event.step}: {tool.name} {call.arguments}")
            case ToolProgress(progress=progress):
                print(f"  {progress.progress:g} of {progress.total:g}")
            case ToolFinished(result=result):
                print(f"  {result.text}")
            case RunFinished(result=final):
                print(final.status, final.stop_reason, final.steps)
            case _:
                pass
    # endregion


asyncio.run(main())
