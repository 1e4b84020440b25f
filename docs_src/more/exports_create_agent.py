"""An agent of LangChain's `create_agent` with tools of an MCP server, one of which needs a person's yes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from toolweave import connect_mcp, create_mcp_server
from toolweave.export import langchain_tools

server = create_mcp_server(name="shop", version="1.0.0")


@server.tool(annotations={"readOnlyHint": True})
def price(item: str) -> str:
    """Say what an item costs."""
    return f"{item}: 3 EUR"


@server.tool(annotations={"destructiveHint": True})
def order(item: str) -> str:
    """Order an item."""
    return f"{item} is ordered"


class StandIn(BaseChatModel):
    """Stands in for a model: asks for the price, orders, and answers."""

    @property
    def _llm_type(self) -> str:
        return "stand-in"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        """Offer the tools to the model."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        called = sum(one.type == "tool" for one in messages)
        names = ["price", "order"][called : called + 1]
        calls = [{"name": name, "args": {"item": "tea"}, "id": f"c{called}"} for name in names]
        message = AIMessage("" if calls else "Your tea is on its way.", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


async def main() -> None:
    async with connect_mcp(server) as shop:
        tools = langchain_tools(shop, confirm="destructive")
        agent: Any = create_agent(StandIn(), tools, checkpointer=InMemorySaver())
        thread = {"configurable": {"thread_id": "ada"}}

        asked = await agent.ainvoke({"messages": [("user", "Order tea.")]}, thread)
        print(asked["__interrupt__"][0].value["action_requests"])

        answered = await agent.ainvoke(Command(resume={"decisions": [{"type": "approve"}]}), thread)
        for message in answered["messages"]:
            print(message.type, message.text or [call["name"] for call in message.tool_calls])


asyncio.run(main())
