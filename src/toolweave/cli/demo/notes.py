"""The demo server `notes`: a notebook over stdio, revision 2025-11-25. `python -m toolweave.cli.demo.notes`."""

from __future__ import annotations

import anyio

from toolweave._json_types import Json
from toolweave.cli.demo import READ_ONLY, arguments_schema
from toolweave.errors import ToolError
from toolweave.protocol.versions import LATEST_HANDSHAKE_VERSION
from toolweave.serve import McpServer, create_mcp_server, prompt, resource
from toolweave.tools import CallContext, Tool, tool

__all__ = ["notes_server"]


_FIRST = ["water the plants", "call the bank before noon", "the plants like rain water"]
_TEXT = {"type": "string", "description": "What to write down"}
_NUMBER = {"type": "integer", "description": "The note's number, from 1"}
_QUERY = {"type": "string", "description": "Text to look for, in any case"}
_LIMIT = {"type": "integer", "description": "How many notes at most", "default": 10, "minimum": 1}


@prompt
async def review(topic: str) -> str:
    """Ask for a review of the notes.

    Args:
        topic: What the review is about
    """
    return f"Review my notes about {topic}."


def notes_server(*, pause: float = 0.04) -> McpServer:
    """Return a notebook with three notes; it forgets everything when it ends.

    `pause` is how many seconds `index_notes` takes for each word.
    """
    notes = list(_FIRST)

    @resource("notes://all", name="notes://all")
    async def everything() -> str:
        return "\n".join(notes)

    server = create_mcp_server(
        "toolweave-demo-notes",
        "1.0.0",
        instructions="A notebook. Search before you add.",
        tools=_tools(notes, pause),
        resources=[everything],
        prompts=[review],
    )
    server.speak(LATEST_HANDSHAKE_VERSION)
    return server


def _tools(notes: list[str], pause: float) -> list[Tool]:
    @tool(
        input_schema=arguments_schema({"text": _TEXT}, required=("text",)),
        annotations={**READ_ONLY, "readOnlyHint": False},
    )
    async def add_note(arguments: Json) -> Json:
        """Write a note down."""
        notes.append(arguments["text"])
        return {"number": len(notes), "text": notes[-1]}

    @tool(input_schema=arguments_schema({"query": _QUERY, "limit": _LIMIT}, required=("query",)), annotations=READ_ONLY)
    async def search_notes(arguments: Json) -> Json:
        """Find notes by their text."""
        query = arguments["query"].lower()
        limit = int(arguments.get("limit", 10))
        return {"notes": [note for note in notes if query in note.lower()][:limit]}

    @tool(input_schema=arguments_schema({"number": _NUMBER}, required=("number",)), annotations=READ_ONLY)
    async def read_note(arguments: Json) -> str:
        """Read one note."""
        number = int(arguments["number"])
        if not 1 <= number <= len(notes):
            raise ToolError(f"there is no note {number}; there are {len(notes)}")
        return notes[number - 1]

    @tool(input_schema=arguments_schema({}), annotations=READ_ONLY)
    async def index_notes(arguments: Json, ctx: CallContext) -> Json:
        """Count the words of all notes, slowly, with progress."""
        words = [word for note in notes for word in note.split()]
        for done, word in enumerate(words, start=1):
            await anyio.sleep(pause)
            await ctx.progress(done, len(words), f"indexing {word!r}")
        return {"words": len(words), "different": len(set(words))}

    return [add_note, search_notes, read_note, index_notes]


if __name__ == "__main__":
    notes_server().run()
