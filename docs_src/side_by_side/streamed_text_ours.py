import asyncio

from toolweave import Agent

agent = Agent("openai:gpt-5.1")


async def main() -> None:
    async for text in agent.stream_text("Count to three."):
        print(text, end="")


asyncio.run(main())
