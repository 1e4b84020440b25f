"""Too many tools for one request: a model gets a search instead, and what it finds."""

from __future__ import annotations

import asyncio

from toolweave import ToolRegistry, tool
from toolweave.agent import ToolSearchToolset
from toolweave.providers import OpenAIResponsesTools

registry = ToolRegistry()

for name, place in {"oslo": "Oslo", "bergen": "Bergen", "kyoto": "京都", "tromso": "Tromsø"}.items():
    for what in ("weather", "traffic", "mood"):

        @registry.add
        @tool(name=f"{name}_{what}", description=f"Says what the {what} is like in {place}.")
        def say() -> str:
            return "fine"


async def main() -> None:
    tools = OpenAIResponsesTools(ToolSearchToolset(registry, budget_tokens=200))  # one for each conversation
    print([one["name"] for one in tools.definitions()])

    asked = '{"query": "weather 京都", "limit": 2}'
    search = {"type": "function_call", "call_id": "c1", "name": "search_tools", "arguments": asked}
    for item in await tools.dispatch([search]):
        print(item["output"])
    print([one["name"] for one in tools.definitions()])


asyncio.run(main())
