import asyncio

from agents import Agent, Runner
from agents.mcp import MCPServerStdio


async def main() -> None:
    async with MCPServerStdio(
        params={"command": "python", "args": ["-m", "toolweave.cli.demo.numbers"]},
    ) as server:
        agent = Agent(name="Assistant", mcp_servers=[server])
        result = await Runner.run(agent, "What is 1 + 2 + 39?")
        print(result.final_output)


asyncio.run(main())
