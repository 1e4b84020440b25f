"""A message and a call that are delivered twice, and done once."""

from __future__ import annotations

import asyncio

from toolweave import Agent, CallContext, ScriptedModel, tool_call
from toolweave.state import MemoryStore
from toolweave.tools import IDEMPOTENCY_KEY

paid: dict[str, str] = {}


def pay(amount: int, ctx: CallContext) -> str:
    """Pay."""
    key = ctx.meta[IDEMPOTENCY_KEY]
    if key not in paid:  # else it is the same call, made again
        paid[key] = f"paid {amount}"
    return paid[key]


async def main() -> None:
    model = ScriptedModel([tool_call("pay", {"amount": 5}), "It is paid."])
    agent = Agent(model, name="payer", tools=[pay], store=MemoryStore())
    for _ in range(2):  # the message of a queue that delivers at least once
        print((await agent.send("Pay 5.", key="order 7")).text)
    print(list(paid.values()))


asyncio.run(main())
