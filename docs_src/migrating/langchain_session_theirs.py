import asyncio

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

notes = {"transport": "stdio", "command": "python", "args": ["-m", "toolweave.cli.demo.notes"]}
client = MultiServerMCPClient({"notes": notes})


async def main() -> None:
    async with client.session("notes") as session:  # without it, each call starts a process
        tools = {tool.name: tool for tool in await load_mcp_tools(session)}
        await tools["add_note"].ainvoke({"text": "buy milk"})
        (block,) = await tools["read_note"].ainvoke({"number": 4})
        print(block["text"])


asyncio.run(main())
