"""A parser of JSON as editors write it, with comments and trailing commas, and the offset of every key.

What is no JSON becomes spaces, so that positions in the cleaned text are those in the file.
"""

from __future__ import annotations

import json
import re
from typing import Any

KeyPath = tuple[str | int, ...]
"""The keys and indexes that lead to a value."""

_STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"?'  # also an unterminated one, to the end of its line
_COMMENT_OR_STRING = rf"{_STRING}|//[^\n]*|/\*"
_COMMA_OR_STRING = rf"{_STRING}|,(?=\s*[}}\]])"
_TOKEN = rf"{_STRING}|[{{}}\[\],:]"
_MAX_DEPTH = 8  # deeper than any server's entry lies


def strip_comments(text: str) -> str:
    """Return the text with comments and trailing commas replaced by spaces; strings and line ends stay."""
    out: list[str] = []
    start = 0
    while match := re.compile(_COMMENT_OR_STRING).search(text, start):
        part = match[0]
        end = match.end()
        out.append(text[start : match.start()])
        if part == "/*":
            closing = text.find("*/", end)
            end = len(text) if closing < 0 else closing + 2
            part = text[match.start() : end]
        out.append(part if part.startswith('"') else _blank(part))
        start = end
    clean = "".join([*out, text[start:]])
    return re.sub(_COMMA_OR_STRING, lambda found: " " if found[0] == "," else found[0], clean)


def parse_json(text: str) -> Any:  # Any: a JSON value
    """Parse JSON, with comments and trailing commas if need be.

    Raises:
        json.JSONDecodeError: It is no JSON; the position is that in the text.
        ValueError: A number has too many digits.
        RecursionError: It is nested too deeply.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return json.loads(strip_comments(text))


def key_offsets(text: str) -> dict[KeyPath, list[int]]:
    """Return the offset of each key and list item; a repeated key has several.

    Expects text that `parse_json` accepts. Descends to 8 levels, deeper than any server's entry.
    """
    found: dict[KeyPath, list[int]] = {}
    path: list[str | int | None] = []  # the current key or index in each open object or list
    expecting = True  # the next string in an object is a key
    for match in re.finditer(_TOKEN, strip_comments(text)):
        part = match[0]
        inside = path[-1] if path else None
        if isinstance(inside, int) and expecting and part not in "]},:":
            _note(found, path, match.start())
            expecting = False
        if part in "{[":
            path.append(None if part == "{" else 0)
            expecting = True
        elif part in "}]":
            del path[-1:]
            expecting = False
        elif part == ",":
            if isinstance(inside, int):
                path[-1] = inside + 1
            expecting = True
        elif part != ":" and expecting and path and not isinstance(inside, int):
            path[-1] = json.loads(part)
            _note(found, path, match.start())
            expecting = False
    return found


def _note(found: dict[KeyPath, list[int]], path: list[str | int | None], offset: int) -> None:
    if len(path) <= _MAX_DEPTH:
        found.setdefault(tuple(key for key in path if key is not None), []).append(offset)


def _blank(comment: str) -> str:
    return re.sub(r"[^\n]", " ", comment)
