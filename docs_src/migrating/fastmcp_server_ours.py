import asyncio

from toolweave import CallContext, ToolError, connect_mcp, create_mcp_server

server = create_mcp_server("notes", instructions="Search before you add.")
notes = ["water the plants"]


@server.tool(annotations={"idempotentHint": False}, tags={"writing"})
async def add(text: str, ctx: CallContext) -> dict[str, int]:
    """Write a note down."""
    if text in notes:
        raise ToolError(f"there is a note {text!r} already")
    notes.append(text)
    await ctx.progress(1, 1)
    return {"number": len(notes)}


@server.resource("notes://{number}")
def note(number: int) -> str:
    """One note."""
    return notes[number - 1]


async def main() -> None:
    async with connect_mcp(server) as client:
        print((await client.call_tool("add", {"text": "buy milk"})).structured_content)
        print((await client.read_resource("notes://2"))[0].text)
        again = await client.call_tool("add", {"text": "buy milk"})
        print(again.is_error, again.text)


if __name__ == "__main__":
    asyncio.run(main())  # as a server: server.run(), or server.run(transport="http", port=8000)
