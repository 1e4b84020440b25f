"""Edits the text of a TOML file: one table is added or replaced, everything else stays as a person wrote it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolweave._json_types import Json, JsonObject
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
    rest = kept[at:]
    block = table_lines(path, value)
    made = "\n".join([*kept[:at], *([""] if at else []), *block, *(rest or [""])])
    try:
        edited = tomllib.loads(made) == wanted
    except ValueError:
        edited = False
    if not edited:
        raise CommandError(f"{source}: it is written in a way that cannot be edited safely", hint=BY_HAND)
    return made.replace("\n", newline)


def _without(lines: list[str], path: Sequence[str]) -> tuple[list[str], int]:
    """Return the lines without the table and those inside of it, and where it was; the end if it was not there.

    A line within a text of several lines may look like a header: what comes out wrong is then refused as a whole.
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
    while at and (not lines[at - 1].strip() or lines[at - 1].lstrip().startswith("#")):
        at -= 1
    return lines[at:]


def _header_path(line: str) -> list[str]:
    """Return the keys of a header, by the reader of TOML itself; none for any other line."""
    try:
        value: Any = tomllib.loads(line)
    except ValueError:
        return []
    keys: list[str] = []
    while isinstance(value, (dict, list)) and value:
        if isinstance(value, list):
            value = cast("list[Any]", value)[0]
            continue
        ((key, value),) = cast("Json", value).items()
        keys.append(key)
    return keys


def table_lines(path: Sequence[str], value: JsonObject) -> list[str]:
    """Return the lines of a table with one key a line."""
    return [f"[{'.'.join(map(_key, path))}]", *(f"{_key(name)} = {_inline(item)}" for name, item in value.items())]


def _key(name: str) -> str:
    if _BARE.fullmatch(name):
        return name
    return _text(name)


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        items = cast("JsonObject", value).items()
        return "{ " + ", ".join(f"{_key(name)} = {_inline(item)}" for name, item in items) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, cast("list[Any]", value))) + "]"
    if isinstance(value, str):
        return _text(value)
    return json.dumps(value)


def _text(value: str) -> str:
    """Return a basic string: JSON's escapes are TOML's, except that DEL has to be escaped as well."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
