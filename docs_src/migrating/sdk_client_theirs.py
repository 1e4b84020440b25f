import asyncio

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import TextContent

parameters = StdioServerParameters(command="python", args=["-m", "toolweave.cli.demo.notes"])


async def main() -> None:
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        started = await session.initialize()
        print(started.server_info.name, [tool.name for tool in (await session.list_tools()).tools])
        result = await session.call_tool("search_notes", {"query": "bank"})
        print(result.structured_content)
        result = await session.call_tool("read_note", {"number": 9})
        print(result.is_error, *(block.text for block in result.content if isinstance(block, TextContent)))


asyncio.run(main())
