"""A run that waits for a person's yes, without a process."""

from __future__ import annotations

import asyncio

from toolweave import Agent, ScriptedModel
from toolweave.agent import RunStatuses
from toolweave.models import tool_call
from toolweave.state import MemoryStore


def delete(name: str) -> str:
    """Delete a file."""
    return f"{name} is deleted"


store = MemoryStore()  # a SqliteStore, or a backend, where another process answers
model = ScriptedModel([tool_call("delete", {"name": "old.txt"}, id="call_1"), "The old file is gone."])
agent = Agent(model, name="cleaner", tools=[delete], confirm="destructive", store=store)


async def main() -> None:
    result = await agent.send("Delete old.txt", attended="later")
    print(result.status, [call.name for call in result.pending])

    statuses = RunStatuses(store)
    for run in await statuses.waiting_runs():
        for call in await statuses.waiting(run.run_id):
            print(call.tool, dict(call.arguments))
            await statuses.approve(call.run_id, call.call_id)

    done = await (await agent.resume(result.run_id))
    print(done.status, done.text)


asyncio.run(main())
