"""A run that is submitted twice and done once. The worker is a task here, and a process of its own elsewhere."""

from __future__ import annotations

import asyncio

from toolweave import Agent, Backend, ScriptedModel, tool, tool_call
from toolweave.agent import work_runs
from toolweave.models import ModelRequest


@tool(annotations={"readOnlyHint": True})
def measure(room: str) -> str:
    """Measure a room."""
    return f"{room}: 12 square metres"


def answer(request: ModelRequest) -> object:
    """Stand in for a model: measure first, then say what was found."""
    if len(request.messages) == 1:
        return [tool_call("measure", {"room": "kitchen"})]
    return "The kitchen has 12 square metres."


backend = Backend.from_environment()
agent = Agent(ScriptedModel(answer), name="surveyor", tools=[measure], backend=backend)


async def main() -> None:
    async with backend, asyncio.TaskGroup() as tasks:
        order = await agent.submit("How large is the kitchen?", key="order-17")
        again = await agent.submit("How large is the kitchen?", key="order-17")
        print("the same run:", order.id == again.id)

        worker = tasks.create_task(work_runs([agent], backend))  # elsewhere: toolweave worker FILE.py
        record = await order.result(timeout=60)
        print(record.status, record.text, record.steps)
        worker.cancel()


if __name__ == "__main__":  # a worker imports this file, and submits nothing
    asyncio.run(main())
