"""An agent of LangChain's `create_agent` as a durable run, whose call waits for a person's yes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from toolweave import SqliteStore, tool
from toolweave.durability import DurableAgent, durable
from toolweave.export import langchain_tools


class StandIn(BaseChatModel):
    """Stands in for a model: calls the tool, then answers."""

    @property
    def _llm_type(self) -> str:
        return "stand-in"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        """Offer the tools to the model."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        paid = any(one.type == "tool" for one in messages)
        calls = [] if paid else [{"name": "pay", "args": {"amount": 5}, "id": "c1"}]
        message = AIMessage("It is paid." if paid else "", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool(annotations={"destructiveHint": True})
def pay(amount: int) -> str:
    """Pay."""
    print("paying", amount)
    return "paid"


def payer(store: SqliteStore) -> DurableAgent[Any]:
    agent: Any = create_agent(StandIn(), langchain_tools([pay], confirm="destructive"), name="payer")
    return durable(agent, store)


async def main() -> None:
    async with SqliteStore("runs.db") as store:
        await payer(store).run({"messages": [("user", "Pay 5.")]}, run_id="order-17")

    async with SqliteStore("runs.db") as store:  # later, in another process
        for call in await payer(store).waiting("order-17"):
            print(call.tool, call.arguments, "waits as", call.call_id)
        result = await payer(store).resume("order-17", approvals={"c1": True})
        print(result["messages"][-1].text)


asyncio.run(main())
