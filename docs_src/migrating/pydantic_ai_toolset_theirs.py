import asyncio

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.test import TestModel

numbers = MCPToolset({"mcpServers": {"numbers": {"command": "python", "args": ["-m", "toolweave.cli.demo.numbers"]}}})
agent = Agent(TestModel(call_tools=["math_add"]), toolsets=[numbers.prefixed("math")])


async def main() -> None:
    async with agent:
        print((await agent.run("What is the sum?")).output)


asyncio.run(main())
