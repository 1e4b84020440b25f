"""A run that waits for the answer to a server's question, without a process."""

from __future__ import annotations

import asyncio

from toolweave import Agent, CallContext, ScriptedModel, create_mcp_server
from toolweave.agent import RunStatuses
from toolweave.models import tool_call
from toolweave.state import MemoryStore

NIGHTS = {"type": "object", "properties": {"nights": {"type": "integer", "minimum": 1}}, "required": ["nights"]}


async def book(guest: str, ctx: CallContext) -> str:
    """Book a room."""
    answer = await ctx.elicit(f"How many nights for {guest}?", NIGHTS)
    return f"{guest}: {answer.content}" if answer.accepted else "not booked"


store = MemoryStore()  # a SqliteStore, or a backend, where another process answers
rooms = create_mcp_server("rooms", "1.0", tools=[book])  # any server: a command, a URL, a config
model = ScriptedModel([tool_call("book", {"guest": "Ada"}, id="call_1"), "Ada has a room."])
agent = Agent(model, name="porter", tools=[rooms], questions=True, store=store)


async def main() -> None:
    result = await agent.send("Book a room for Ada", attended="later")
    print(result.status)

    statuses = RunStatuses(store)
    for call in await statuses.waiting(result.run_id):
        if call.question is not None:
            print(call.server, "asks:", call.question.message)
            await statuses.answer(call.run_id, call.call_id, {"nights": 2})

    done = await (await agent.resume(result.run_id))
    print(done.status, done.text)


asyncio.run(main())
