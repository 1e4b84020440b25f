"""Pydantic AI with a toolset; its test model calls every tool once."""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from toolweave import ToolRegistry
from toolweave.export import pydantic_ai_toolset

registry = ToolRegistry()


@registry.add
def price(item: str) -> str:
    """Says what an item costs."""
    return "3 EUR"


async def main() -> None:
    agent = Agent(TestModel(), toolsets=[pydantic_ai_toolset(registry)])
    print((await agent.run("What does tea cost?")).output)

    @registry.add
    def weigh(item: str) -> str:
        """Says what an item weighs."""
        return "20 g"

    print((await agent.run("And what does it weigh?")).output)  # the same agent: the toolset is live


asyncio.run(main())
