import asyncio

from toolweave import connect_mcp

parameters = {"command": "python", "args": ["-m", "toolweave.cli.demo.notes"]}


async def main() -> None:
    async with connect_mcp(parameters) as connection:
        print(connection.server_info["name"], [tool.name for tool in await connection.list_tools()])
        result = await connection.call_tool("search_notes", {"query": "bank"})
        print(result.structured_content)
        result = await connection.call_tool("read_note", {"number": 9})
        print(result.is_error, result.text)


asyncio.run(main())
