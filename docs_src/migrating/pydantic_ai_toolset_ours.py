import asyncio

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from toolweave import connect_mcp
from toolweave.export import pydantic_ai_toolset


async def main() -> None:
    async with connect_mcp("python -m toolweave.cli.demo.numbers") as numbers:
        agent = Agent(TestModel(call_tools=["math_add"]), toolsets=[pydantic_ai_toolset(numbers).prefixed("math")])
        print((await agent.run("What is the sum?")).output)


asyncio.run(main())
