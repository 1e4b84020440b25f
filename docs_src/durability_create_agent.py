"""An agent of LangChain's `create_agent` as a durable run, whose call waits for a person."""

from __future__ import annotations

import asyncio
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage

from toolweave import SqliteStore, tool
from toolweave.durability import DurableAgent, durable
from toolweave.export import langchain_tools


class StandIn(FakeMessagesListChatModel):
    """Stands in for a model: returns its responses in turn."""

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        """Ignore the tools."""
        return self


call = AIMessage("", tool_calls=[{"name": "pay", "args": {"amount": 5}, "id": "c1"}])
model = StandIn(responses=[call, AIMessage("It is paid.")])


@tool(annotations={"destructiveHint": True})
def pay(amount: int) -> str:
    """Pay."""
    print("paying", amount)
    return "paid"


def payer(store: SqliteStore) -> DurableAgent[Any]:
    agent: Any = create_agent(model, langchain_tools([pay], confirm="destructive"), name="payer")
    return durable(agent, store)


async def main() -> None:
    async with SqliteStore("runs.db") as store:
        await payer(store).run({"messages": [("user", "Pay 5.")]}, run_id="order-17")

    async with SqliteStore("runs.db") as store:  # later, in another process
        for waiting in await payer(store).waiting("order-17"):
            print(waiting.tool, waiting.arguments, "waits as", waiting.call_id)
        result = await payer(store).resume("order-17", approvals={"c1": True})
        print(result["messages"][-1].text)


asyncio.run(main())
