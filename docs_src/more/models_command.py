"""A model without a model."""

from __future__ import annotations

import asyncio

from toolweave import Agent
from toolweave.models import CommandModel


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    agent = Agent(CommandModel(), tools=[add])
    for text in ("add numbers", '/call add {"a": 2, "b": 40}'):
        print((await agent.send(text)).text)


asyncio.run(main())
