import asyncio

from toolweave import connect_mcp
from toolweave.export import langchain_tools


async def main() -> None:
    async with connect_mcp("python -m toolweave.cli.demo.notes") as notes:  # started again if it dies
        tools = {tool.name: tool for tool in langchain_tools(notes)}
        await tools["add_note"].ainvoke({"text": "buy milk"})
        print(await tools["read_note"].ainvoke({"number": 4}))


asyncio.run(main())
