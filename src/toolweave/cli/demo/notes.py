"""The demo server `notes`: a notebook over stdio, revision 2025-11-25. `python -m toolweave.cli.demo.notes`."""

from __future__ import annotations

import time

from toolweave.cli.demo.peer import DemoServer, DemoTool, Json, Report, ToolFailedError
from toolweave.cli.demo.stdio import serve_stdio

__all__ = ["notes_server"]

_FIRST = ["water the plants", "call the bank before noon", "the plants like rain water"]


def notes_server(*, pause: float = 0.04) -> DemoServer:
    """Return a notebook with three notes; it forgets everything when it ends.

    `pause` is how many seconds `index_notes` takes for each word.
    """
    notes = list(_FIRST)

    def add_note(arguments: Json, report: Report) -> Json:
        notes.append(str(arguments["text"]))
        return {"number": len(notes), "text": notes[-1]}

    def search_notes(arguments: Json, report: Report) -> Json:
        query, limit = str(arguments["query"]).lower(), int(arguments.get("limit", 10))
        return {"notes": [note for note in notes if query in note.lower()][:limit]}

    def read_note(arguments: Json, report: Report) -> str:
        number = int(arguments["number"])
        if not 1 <= number <= len(notes):
            raise ToolFailedError(f"there is no note {number}; there are {len(notes)}")
        return notes[number - 1]

    def index_notes(arguments: Json, report: Report) -> Json:
        words = [word for note in notes for word in note.split()]
        for done, word in enumerate(words, start=1):
            time.sleep(pause)
            report(done, len(words), f"indexing {word!r}")
        return {"words": len(words), "different": len(set(words))}

    text = {"type": "string", "description": "What to write down"}
    number = {"type": "integer", "description": "The note's number, from 1"}
    query = {"type": "string", "description": "Text to look for, in any case"}
    limit = {"type": "integer", "description": "How many notes at most", "default": 10, "minimum": 1}
    tools = [
        DemoTool("add_note", "Write a note down.", {"text": text}, add_note, ["text"], read_only=False),
        DemoTool(
            "search_notes", "Find notes by their text.", {"query": query, "limit": limit}, search_notes, ["query"]
        ),
        DemoTool("read_note", "Read one note.", {"number": number}, read_note, ["number"]),
        DemoTool("index_notes", "Count the words of all notes, slowly, with progress.", {}, index_notes),
    ]
    server = DemoServer("notes", tools, modern=False, instructions="A notebook. Search before you add.")
    server.resources["notes://all"] = lambda: "\n".join(notes)
    topic = {"name": "topic", "description": "What the review is about", "required": True}
    listing: Json = {"name": "review", "description": "Ask for a review of the notes.", "arguments": [topic]}
    server.prompts["review"] = (listing, lambda given: f"Review my notes about {given.get('topic', 'everything')}.")
    return server


if __name__ == "__main__":
    serve_stdio(notes_server())
