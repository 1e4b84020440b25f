"""A run that ends in the middle and goes on later, without doing anything twice."""

from __future__ import annotations

import asyncio

from toolweave import Agent, ModelError, ScriptedModel, SqliteStore, tool_call
from toolweave.agent import RunStatuses


def pay(amount: int) -> str:
    """Pay."""
    print("paying", amount)
    return "paid"


async def main() -> None:
    async with SqliteStore("runs.db") as store:
        breaks = ScriptedModel([[tool_call("pay", {"amount": 5})], ModelError("overloaded", model="m")])
        run = Agent(breaks, name="payer", tools=[pay], store=store).send("Pay 5.")
        try:
            await run
        except ModelError as error:
            print(error)

    # region resume
    async with SqliteStore("runs.db") as store:  # later, in another process
        agent = Agent(ScriptedModel(["It is paid."]), name="payer", tools=[pay], store=store)
        resumed = await agent.resume(run.id)
        print((await resumed).text)

        found = await RunStatuses(store).recent(agent="payer")
        print([(one.status, one.record.prompt, one.record.attempts) for one in found])
    # endregion


asyncio.run(main())
