"""Tutorial 4: a server of your own."""

from __future__ import annotations

from toolweave import create_mcp_server

server = create_mcp_server("desk", instructions="Shorten a text before you save it as a note.")


@server.tool(annotations={"readOnlyHint": True})
def shorten(text: str, words: int = 3) -> str:
    """Keep the first words of a text.

    Args:
        text: The text to shorten.
        words: The number of words to keep.
    """
    return " ".join(text.split()[:words])


@server.resource("desk://rules")
def rules() -> str:
    """The rules for good notes."""
    return "One idea a note."
