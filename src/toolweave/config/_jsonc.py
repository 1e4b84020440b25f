"""A parser of JSON as editors write it, with comments and trailing commas, and the offset of every key.

All that is not JSON becomes spaces, so that positions in the cleaned text are those in the file.
"""

from __future__ import annotations

import json
import re
from typing import Any

from toolweave._json_types import not_none

KeyPath = tuple[str | int, ...]
"""The keys and indexes that lead to a value."""

_STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"?'  # also an unterminated one, to the end of its line
_COMMENT_OR_STRING = rf"{_STRING}|//[^\n]*|/\*"
_COMMA_OR_STRING = rf"{_STRING}|,(?=\s*[}}\]])"
_TOKEN = rf"{_STRING}|[{{}}\[\],:]"
_MAX_DEPTH = 8  # deeper than any server's entry lies
_OPENING = {"{": None, "[": 0}


def strip_comments(text: str) -> str:
    """Return the text with comments and trailing commas replaced by spaces; strings and line ends stay."""
    # Each is replaced by as many spaces, and line ends stay, so that every offset and line of the result is that of
    # the text: errors and `key_offsets` name places in the file that the owner sees.
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
        # strings are matched so that `//` in them is not a comment
        if not part.startswith('"'):
            part = _blank(part)
        out.append(part)
        start = end
    clean = "".join([*out, text[start:]])
    return re.sub(_COMMA_OR_STRING, _blank_comma, clean)


def _blank_comma(found: re.Match[str]) -> str:
    if found[0] == ",":
        return " "
    return found[0]


def parse_json(text: str) -> Any:  # Any: a JSON value
    """Parse JSON, with comments and trailing commas if need be.

    Raises:
        json.JSONDecodeError: The text is not JSON; the position is that in the text.
        ValueError: A number has too many digits.
        RecursionError: It is nested too deeply.
    """
    # Strict JSON first: it is several times faster, and most files are.
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return json.loads(strip_comments(text))


def key_offsets(text: str) -> dict[KeyPath, list[int]]:
    """Return the offset of each key and list item; a repeated key has several.

    Expects text that `parse_json` accepts. Descends to 8 levels, deeper than any server's entry.
    """
    found: dict[KeyPath, list[int]] = {}
    # A state machine over brackets, commas, colons and strings. `path` has the current key or index of each open
    # object or list: None for an object whose key is still to come, so only a list has a number at the end.
    path: list[str | int | None] = []
    expecting = True  # the next token is a key, or the start of a list's item
    for match in re.finditer(_TOKEN, strip_comments(text)):
        part = match[0]
        inside = path[-1] if path else None
        in_list = isinstance(inside, int)
        if in_list and expecting and part not in "]},:":
            _note(found, path, match.start())
            expecting = False
        if part in _OPENING:
            path.append(_OPENING[part])
            expecting = True
        elif part in "}]":
            del path[-1:]
            expecting = False
        elif part == ",":
            if isinstance(inside, int):
                path[-1] = inside + 1
            expecting = True
        elif path and expecting and part != ":":
            path[-1] = json.loads(part)
            _note(found, path, match.start())
            expecting = False
    return found


def _note(found: dict[KeyPath, list[int]], path: list[str | int | None], offset: int) -> None:
    if len(path) <= _MAX_DEPTH:
        found.setdefault(tuple(not_none(path)), []).append(offset)


def _blank(comment: str) -> str:
    return re.sub(r"[^\n]", " ", comment)
