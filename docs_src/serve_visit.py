"""A server is used in the same process as its client: the whole protocol, and no process or port."""

from __future__ import annotations

import asyncio

from serve_notes import server

from toolweave import connect_mcp


async def main() -> None:
    async with connect_mcp(server) as notes:
        print(notes.protocol_version, (await notes.list_tools()).names)
        print((await notes.call_tool("search", {"query": "plants"})).structured_content)
        print((await notes.call_tool("add", {"text": "buy milk"})).text)

        twice = await notes.call_tool("add", {"text": "buy milk"})
        print(twice.is_error, twice.text)
        wrong = await notes.call_tool("search", {"qery": "plants"})
        print(wrong.text)

        print((await notes.read_resource("notes://3"))[0].text)
        print((await notes.get_prompt("review", {"topic": "plants"})).messages[0].content.render())
        print((await notes.complete({"type": "ref/prompt", "name": "review"}, "topic", "plan")).values)


asyncio.run(main())
