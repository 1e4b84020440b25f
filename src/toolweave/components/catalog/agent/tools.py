"""What the agent may call. These are examples: put your functions in their place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import gmtime, strftime
from typing import Any

from toolweave import tool

NOTES = Path("notes.txt")


@tool(annotations={"readOnlyHint": True})
def current_time() -> str:
    """Return the date and time now, in UTC."""
    return strftime("%Y-%m-%d %H:%M:%S", gmtime())


@tool(annotations={"destructiveHint": True})
def write_note(text: str) -> str:
    """Add a line to the notes. The user is asked before."""
    with NOTES.open("a", encoding="utf-8") as file:
        file.write(text.strip() + "\n")
    return f"written to {NOTES}"


TOOLS: list[Callable[..., Any]] = [current_time, write_note]
