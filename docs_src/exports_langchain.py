"""LangChain tools of a toolset, called as an agent calls them."""

from __future__ import annotations

import asyncio

from langchain_core.messages import ToolCall

from toolweave import ToolError, ToolRegistry
from toolweave.export import langchain_tools

registry = ToolRegistry()


@registry.add
def price(item: str) -> dict[str, object]:
    """Says what an item costs."""
    return {"item": item, "euros": 3}


@registry.add
def weigh(item: str) -> str:
    """Says what an item weighs."""
    raise ToolError(f"there are no scales for {item}")


async def main() -> None:
    tools = langchain_tools(registry)  # or a hub, a connection, functions: for create_agent(model, tools)
    for tool in tools:
        call = ToolCall(type="tool_call", id="c1", name=tool.name, args={"item": "tea"})
        message = await tool.ainvoke(call)
        print(message.status, message.content, message.artifact)


asyncio.run(main())
