"""A server is used in the same process as its client: the whole protocol, and no process or port."""

from __future__ import annotations

import asyncio

from toolweave import ToolError, connect_mcp, create_mcp_server

notes = {1: "water the plants", 2: "call the bank"}
server = create_mcp_server(name="notes", version="1.0.0")


@server.tool
def search(query: str) -> dict[str, list[str]]:
    """Find notes by their text."""
    return {"found": [text for text in notes.values() if query in text]}


@server.tool
def add(text: str) -> int:
    """Write a note down, and return its number."""
    if text in notes.values():
        raise ToolError(f"there is a note {text!r} already", code="DUPLICATE")
    notes[len(notes) + 1] = text
    return len(notes)


@server.resource("notes://{number}", name="note")
def one_note(number: int) -> str:
    """One note."""
    return notes[number]


@server.prompt
def review(topic: str) -> str:
    """Ask for a review."""
    return f"Review my notes about {topic}."


@server.completion(ref="prompt:review", argument="topic")
def topics(value: str) -> list[str]:
    return [topic for topic in ("bank", "plants", "planning") if topic.startswith(value)]


async def main() -> None:
    async with connect_mcp(server) as client:
        print(client.protocol_version, (await client.list_tools()).names)
        print((await client.call_tool("search", {"query": "plants"})).structured_content)
        print((await client.call_tool("add", {"text": "buy milk"})).text)

        twice = await client.call_tool("add", {"text": "buy milk"})
        print(twice.is_error, twice.text)
        wrong = await client.call_tool("search", {"qery": "plants"})
        print(wrong.text)

        print((await client.read_resource("notes://3"))[0].text)
        print((await client.get_prompt("review", {"topic": "plants"})).messages[0].content.render())
        print((await client.complete({"type": "ref/prompt", "name": "review"}, "topic", "plan")).values)


asyncio.run(main())
