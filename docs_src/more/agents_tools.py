"""Tools that come and go, and tools that whoever asks runs itself."""

from __future__ import annotations

import asyncio

from toolweave import Agent, ClientTool, ScriptedModel, ToolResult, tool_call
from toolweave.models import ToolMessage, ToolOutcome


def now() -> str:
    """Tell the time."""
    return "10:15"


def later() -> str:
    """Tell the time in an hour."""
    return "11:15"


async def main() -> None:
    # region client
    where = ClientTool(name="where", description="Where the user is.")
    agent = Agent(ScriptedModel([[tool_call("where", id="1")], "You are in Oslo."]), tools=[now, where])
    asked = await agent.send("Where am I?", session="ada")
    print(asked.stop_reason, [call.name for call in asked.pending])

    here = ToolOutcome(call_id="1", name="where", result=ToolResult.of("59.9 N, 10.8 E"))
    print((await agent.send(ToolMessage(outcomes=(here,)), session="ada")).text)
    # endregion

    agent.tools.add(later)
    agent.tools.remove("now")
    print(agent.tools.list().names)


asyncio.run(main())
