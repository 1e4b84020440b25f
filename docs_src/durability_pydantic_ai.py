"""A run of a Pydantic AI agent that fails, and goes on without doing anything twice."""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from toolweave import SqliteStore
from toolweave.durability import durable

away = True


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stand in for a model: call the tool, break once, then answer."""
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("pay", {"amount": 5})])
    if away:
        raise ConnectionError("the model is away")
    return ModelResponse(parts=[TextPart("It is paid.")])


agent = Agent(FunctionModel(answer), name="payer")


@agent.tool_plain
def pay(amount: int) -> str:
    """Pay."""
    print("paying", amount)
    return "paid"


async def main() -> None:
    global away
    async with SqliteStore("runs.db") as store:
        payer = durable(agent, store)
        try:
            await payer.run("Pay 5.", run_id="order-17")
        except ConnectionError as error:
            print(error)

        away = False  # later, or in another process
        result = await payer.resume("order-17")
        print(result.output, result.usage.requests)


asyncio.run(main())
