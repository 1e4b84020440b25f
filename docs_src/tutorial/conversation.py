"""Tutorial 3: two messages in one conversation."""

from __future__ import annotations

import asyncio

from toolweave import Agent, ScriptedModel

model = ScriptedModel(["Two: 1 and 3.", "The first one is: water the plants."])


async def main() -> None:
    agent = Agent(model)
    for message in ("Which notes are about plants?", "What does the first one say?"):
        result = await agent.send(message, session="desk")
        print(f"{len(result.messages)} messages: {result.text}")


asyncio.run(main())
