import asyncio

from fastmcp import Client

config = {
    "mcpServers": {
        "home": {"command": "python", "args": ["-m", "toolweave.cli.demo.notes"]},
        "work": {"command": "python", "args": ["-m", "toolweave.cli.demo.notes"]},
    }
}


async def main() -> None:
    async with Client(config) as client:
        for tool in await client.list_tools():
            print(tool.name)
        result = await client.call_tool("home_add_note", {"text": "Water the plants."})
        print(result.structured_content)


asyncio.run(main())
