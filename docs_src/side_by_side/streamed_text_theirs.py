import asyncio

from pydantic_ai import Agent

agent = Agent("openai:gpt-5.1")


async def main() -> None:
    async with agent.run_stream("Count to three.") as result:
        async for text in result.stream_text(delta=True):
            print(text, end="")


asyncio.run(main())
