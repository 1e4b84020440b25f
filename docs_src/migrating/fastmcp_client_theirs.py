import asyncio

from fastmcp import Client
from fastmcp.exceptions import ToolError

notes = {"command": "python", "args": ["-m", "toolweave.cli.demo.notes"]}


async def show(progress: float, total: float | None, message: str | None) -> None:
    if progress == total:
        print(message)


async def main() -> None:
    async with Client({"mcpServers": {"home": notes, "work": notes}}) as client:
        print(len(await client.list_tools()))
        result = await client.call_tool("work_index_notes", progress_handler=show)
        print(result.structured_content)
        try:
            await client.call_tool("work_read_note", {"number": 9})
        except ToolError as error:
            print("failed:", error)


asyncio.run(main())
