"""Resources, a template, a prompt and a completion, read by a client in the same process."""

from __future__ import annotations

import asyncio

from toolweave import ToolError, connect_mcp, create_mcp_server

NOTES = {1: "water the plants", 2: "call the bank"}
server = create_mcp_server("notes")


@server.resource("notes://all", mime_type="text/plain")
def all_notes() -> str:
    """All notes, a line each."""
    return "\n".join(NOTES.values())


@server.resource("notes://{number}", name="note")
def one_note(number: int) -> str:
    """One note."""
    if number not in NOTES:
        raise ToolError(f"there is no note {number}", kind="not_found")
    return NOTES[number]


@server.prompt(title="Review my notes")
def review(topic: str) -> str:
    """Ask for a review."""
    return f"Review my notes about {topic}."


@server.completion(ref="prompt:review", argument="topic")
def topics(value: str) -> list[str]:
    return [topic for topic in ("bank", "plants") if topic.startswith(value)]


async def main() -> None:
    async with connect_mcp(server) as client:
        print((await client.read_resource("notes://2"))[0].text)
        print((await client.get_prompt("review", {"topic": "plants"})).messages[0].content.render())


asyncio.run(main())
