import asyncio

from fastmcp import Client, Context, FastMCP
from fastmcp.exceptions import ToolError

mcp = FastMCP("notes", instructions="Search before you add.")
notes = ["water the plants"]


@mcp.tool(annotations={"idempotentHint": False}, tags={"writing"})
async def add(text: str, ctx: Context) -> dict[str, int]:
    """Write a note down."""
    if text in notes:
        raise ToolError(f"there is a note {text!r} already")
    notes.append(text)
    await ctx.report_progress(1, 1)
    return {"number": len(notes)}


@mcp.resource("notes://{number}")
def note(number: int) -> str:
    """One note."""
    return notes[number - 1]


async def main() -> None:
    async with Client(mcp) as client:
        print((await client.call_tool("add", {"text": "buy milk"})).structured_content)
        print((await client.read_resource("notes://2"))[0].text)
        again = await client.call_tool("add", {"text": "buy milk"}, raise_on_error=False)
        print(again.is_error, again.content[0].text)


if __name__ == "__main__":
    asyncio.run(main())  # as a server: mcp.run(), or mcp.run(transport="http", port=8000)
