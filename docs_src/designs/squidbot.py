"""squidbot: a gateway and a one-message command over the servers of the settings, all closed however they end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from toolweave import Agent, connect_mcp_servers
from toolweave.models import ModelRequest, ScriptedModel, UserMessage, tool_call

logging.getLogger("toolweave").setLevel(logging.ERROR)  # each skipped server is a WARNING

settings: dict[str, Any] = {
    "tools": {
        "mcp_servers": {
            "numbers": {"transport": "stdio", "command": "python", "args": ["-m", "toolweave.cli.demo.numbers"]},
            "gone": {"transport": "stdio", "command": "no-such-program"},
        }
    }
}


def clock() -> str:
    """Say what time it is."""
    return "noon"


@asynccontextmanager
async def agent_loop(model: ScriptedModel) -> AsyncGenerator[Agent, None]:
    """Connect the servers of the settings and put their tools beside our own; close all of it at the end."""
    async with connect_mcp_servers(settings) as connections:
        print("skipped:", list(connections.errors))
        async with Agent(model, system="You are squidbot.", tools=[clock, connections]) as agent:
            yield agent


async def run_agent(message: str) -> None:
    """Answer one message."""
    model = ScriptedModel([[tool_call("numbers_add", {"values": [40, 2]}), tool_call("clock")], "42, at noon"])
    async with agent_loop(model) as agent:
        print((await agent.send(message)).text)


def count_turns(request: ModelRequest) -> str:
    return f"message {sum(isinstance(one, UserMessage) for one in request.messages)}"


async def run_gateway(inbox: asyncio.Queue[tuple[str, str] | None]) -> None:
    """Answer what comes, each session in its own conversation, until the queue ends."""
    async with agent_loop(ScriptedModel(count_turns)) as agent:
        while (got := await inbox.get()) is not None:
            session, text = got
            print(session, "->", (await agent.send(text, session=session)).text)


async def main() -> None:
    await run_agent("What is 40 + 2, and what time is it?")

    inbox: asyncio.Queue[tuple[str, str] | None] = asyncio.Queue()
    for message in (("ada", "hello"), ("bob", "hello"), ("ada", "and now?"), None):
        inbox.put_nowait(message)
    await run_gateway(inbox)


asyncio.run(main())
