"""A process that sends messages of one session to an agent, over a store that others share: NAME COUNT STORE."""

from __future__ import annotations

import asyncio
import json
import sys

from toolweave import Agent, ScriptedModel
from toolweave.models import ModelRequest, UserMessage
from toolweave.state import open_store


async def answer(request: ModelRequest) -> str:
    """Return the messages of the user that the run has read."""
    await asyncio.sleep(0.02)
    return json.dumps([one.text for one in request.messages if isinstance(one, UserMessage)])


async def main() -> None:
    name, count, place = sys.argv[1:]
    async with open_store(place) as store:
        agent = Agent(ScriptedModel(answer), name="chat", store=store)
        print("ready", flush=True)
        sys.stdin.readline()
        results = [await agent.send(f"{name}{number}", session="one") for number in range(int(count))]
    print(json.dumps([json.loads(result.text) for result in results]), flush=True)


asyncio.run(main())
