"""A run that is submitted twice and done once. The worker is a task here, and a process of its own elsewhere."""

from __future__ import annotations

import asyncio

from scale_app import agent, backend

from toolweave.agent import work_runs


async def main() -> None:
    async with backend, asyncio.TaskGroup() as tasks:
        order = await agent.submit("How large is the kitchen?", key="order-17")
        again = await agent.submit("How large is the kitchen?", key="order-17")
        print("the same run:", order.id == again.id)

        worker = tasks.create_task(work_runs([agent], backend))  # elsewhere: toolweave worker scale_app.py
        record = await order.result(timeout=60)
        print(record.status, record.text, record.steps)
        worker.cancel()


asyncio.run(main())
