"""A Pydantic AI agent whose submitted run is executed by a worker."""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from toolweave import Backend
from toolweave.agent import work_runs
from toolweave.durability import durable

backend = Backend.from_environment()
agent = Agent(TestModel(custom_output_text="It is paid."), name="payer", deps_type=str)
payer = durable(agent, backend, options={"deps": "what every run of this process is given"})


async def main() -> None:
    async with backend, asyncio.TaskGroup() as tasks:
        order = await payer.submit("Pay 5.", key="order-17")  # anywhere

        worker = tasks.create_task(work_runs([payer], backend))  # in a process of its own
        record = await order.result(timeout=60)
        print(record.status, record.text)
        worker.cancel()


if __name__ == "__main__":
    asyncio.run(main())
