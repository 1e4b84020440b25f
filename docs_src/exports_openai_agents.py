"""The OpenAI Agents SDK with tools of a toolset."""

from __future__ import annotations

from agents import Agent

from toolweave import ToolRegistry
from toolweave.export import openai_agents_tools

registry = ToolRegistry()


@registry.add
def price(item: str) -> str:
    """Says what an item costs."""
    return f"{item}: 3 EUR"


agent = Agent(name="shop", tools=openai_agents_tools(registry))
print([tool.name for tool in agent.tools])
