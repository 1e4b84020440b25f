"""Two users, two conversations."""

from __future__ import annotations

import asyncio

from toolweave import Agent, ScriptedModel
from toolweave.models import ModelRequest


def answer(request: ModelRequest) -> str:
    return f"I have read {len(request.messages)} messages."


async def main() -> None:
    agent = Agent(ScriptedModel(answer))
    async with agent:
        for session in ("ada", "ada", "bob"):
            print(session, (await agent.send("Hello!", session=session)).text)
        print("-", (await agent.send("Hello!")).text)


asyncio.run(main())
