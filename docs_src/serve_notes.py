"""A server: tools, a resource, a template of resources, a prompt and a completion."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from toolweave import CallContext, ToolError, create_mcp_server, tool


# region tools
class Note(BaseModel):
    """A note as it was written down."""

    number: int
    text: str


@tool(title="Search notes", annotations={"readOnlyHint": True})
def search(
    query: Annotated[str, Field(description="What to look for", min_length=1)],
    ctx: CallContext,
    limit: int = 10,
) -> dict[str, list[str]]:
    """Find notes by their text."""
    notes: dict[int, str] = ctx.state["notes"]
    return {"found": [text for text in notes.values() if query in text][:limit]}


@tool(annotations={"readOnlyHint": False, "idempotentHint": False})
def add(text: str, ctx: CallContext) -> Note:
    """Write a note down."""
    notes: dict[int, str] = ctx.state["notes"]
    if text in notes.values():
        raise ToolError(f"there is a note {text!r} already", code="DUPLICATE")
    number = len(notes) + 1
    notes[number] = text
    return Note(number=number, text=text)


server = create_mcp_server(
    name="notes",
    version="1.0.0",
    instructions="Search before you add.",
    tools=[search, add],
    state={"notes": {1: "water the plants", 2: "call the bank"}},
)
# endregion


@server.resource("notes://all", mime_type="text/plain")
def all_notes(ctx: CallContext) -> str:
    """All notes, a line each."""
    return "\n".join(ctx.state["notes"].values())


@server.resource("notes://{number}", name="note")
def one_note(number: int, ctx: CallContext) -> str:
    """One note."""
    try:
        return ctx.state["notes"][number]
    except KeyError:
        raise ToolError(f"there is no note {number}", kind="not_found") from None


@server.prompt(title="Review my notes")
def review(topic: str) -> str:
    """Ask for a review."""
    return f"Review my notes about {topic}."


@server.completion(ref="prompt:review", argument="topic")
def topics(value: str) -> list[str]:
    return [topic for topic in ("bank", "plants", "planning") if topic.startswith(value)]


if __name__ == "__main__":
    server.run_stdio()
