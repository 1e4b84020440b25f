"""A run of another framework's agent that waits for a person's yes, without a process."""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from toolweave import SqliteStore
from toolweave.durability import durable
from toolweave.export import pydantic_ai_toolset


def pay(amount: int) -> str:
    """Pay."""
    print("paying", amount)
    return "paid"


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stand in for a model: call the tool, then answer."""
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("pay", {"amount": 5}, tool_call_id="c1")])
    return ModelResponse(parts=[TextPart("It is paid.")])


agent = Agent(
    FunctionModel(answer),
    name="payer",
    toolsets=[pydantic_ai_toolset([pay], confirm="destructive")],  # or tools with requires_approval=True
    output_type=[str, DeferredToolRequests],
)


async def main() -> None:
    async with SqliteStore("runs.db") as store:
        await durable(agent, store).run("Pay 5.", run_id="order-17")

    async with SqliteStore("runs.db") as store:  # later, in another process
        payer = durable(agent, store)
        for call in await payer.waiting("order-17"):
            print(call.tool, call.arguments, "waits as", call.call_id)
        result = await payer.resume("order-17", approvals={"c1": True})
        print(result.output)


asyncio.run(main())
