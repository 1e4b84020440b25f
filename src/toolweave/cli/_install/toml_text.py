"""Edits the text of a TOML file: one table is added or replaced, everything else stays as a person wrote it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence

from toolweave._json_types import Json, JsonObject, as_array, as_object, object_or_empty
from toolweave.cli._exit_codes import CommandError
from toolweave.cli._serve.editor_config import BY_HAND, with_value

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"[ \t]*(\[\[?)[^\n]*")


def read_toml(text: str, source: str) -> Json:
    """Return the value of a TOML text.

    Raises:
        CommandError: The text is not TOML.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{source}: this is not valid TOML: {error}") from None


def with_table(text: str, path: Sequence[str], value: JsonObject, source: str) -> str:
    """Return the text with the table at `path` set to `value`: replaced if it is there, else at the end.

    Raises:
        CommandError: The file is invalid, or writes the table in a way that is not edited here.
    """
    before = read_toml(text, source)
    wanted = with_value(before, path, value, source, kind="table")
    if wanted == before:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.replace("\r\n", "\n").split("\n")
    kept, at = _without(lines, path)
    while at and not kept[at - 1].strip():
        at -= 1
    above = [*kept[:at], ""] if at else []
    below = kept[at:] or [""]
    made = "\n".join([*above, *table_lines(path, value), *below])
    # The lines are cut by their look, without the parser. Only a text that reads as the wanted document is kept.
    try:
        is_right = tomllib.loads(made) == wanted
    except ValueError:
        is_right = False
    if not is_right:
        raise CommandError(f"{source}: it is written in a way that cannot be edited safely", hint=BY_HAND)
    return made.replace("\n", newline)


def _without(lines: list[str], path: Sequence[str]) -> tuple[list[str], int]:
    """Return the lines without the table and those inside of it, and where it was; the end if it was not there.

    A line within a text of several lines may look like a header: a wrong result is then refused as a whole.
    """
    kept: list[str] = []
    dropped: list[str] = []
    at = -1
    inside = False
    for line in lines:
        if _HEADER.fullmatch(line):
            kept += _tail(dropped)
            dropped = []
            inside = _header_path(line)[: len(path)] == list(path)
        if inside and at < 0:
            at = len(kept)
        (dropped if inside else kept).append(line)
    kept += _tail(dropped)
    return kept, len(kept) if at < 0 else at


def _tail(lines: list[str]) -> list[str]:
    """Return the comments and empty lines at the end of a table: they belong to the next one."""
    at = len(lines)
    while at and lines[at - 1].partition("#")[0].strip() == "":
        at -= 1
    return lines[at:]


def _header_path(line: str) -> list[str]:
    """Return the keys of a header, by the reader of TOML itself; none for any other line."""
    try:
        value: object = tomllib.loads(line)
    except ValueError:
        return []
    # `[[a.b]]` reads as {"a": {"b": [{}]}}: an object with one member for each key, in a list if it is an array's.
    keys: list[str] = []
    while value:
        items = as_array(value)
        if items is not None:
            value = items[0]
            continue
        ((key, value),) = object_or_empty(value).items()
        keys.append(key)
    return keys


def table_lines(path: Sequence[str], value: JsonObject) -> list[str]:
    """Return the lines of a table with one key a line."""
    header = f"[{'.'.join(map(_key, path))}]"
    return [header, *(f"{_key(name)} = {_inline(item)}" for name, item in value.items())]


def _key(name: str) -> str:
    if _BARE.fullmatch(name):
        return name
    return _text(name)


def _inline(value: object) -> str:
    if isinstance(value, str):
        return _text(value)
    members = as_object(value)
    if members is not None:
        pairs = ", ".join(f"{_key(name)} = {_inline(item)}" for name, item in members.items())
        return f"{{ {pairs} }}"
    items = as_array(value)
    if items is not None:
        return f"[{', '.join(map(_inline, items))}]"
    return json.dumps(value)


def _text(value: str) -> str:
    """Return a basic string: JSON's escapes are TOML's, except that DEL has to be escaped as well."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
