"""Edits the text of a TOML file: one table is added or replaced, everything else stays as a person wrote it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Sequence

from toolweave._json_types import Json, JsonObject, as_array, as_object, object_or_empty
from toolweave.cli._exit_codes import CommandError
from toolweave.cli._serve.editor_config import BY_HAND, with_value

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"[ \t]*\[")
_LF = re.compile(r"(?<!\r)\n")


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
    # New lines end like those that are there. In a text with both ends, each line stays as it is.
    end = "\n"
    if "\r\n" in text and not _LF.search(text):
        end = "\r\n"
    # the one thing that is added elsewhere: the end of the last line
    lines = _lines(text)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += end
    table = _lines(end.join([*table_lines(path, value), ""]))
    # Only a text that reads as the wanted document is kept.
    made = "".join(_with_lines(lines, path, table, gap=end))
    try:
        is_right = tomllib.loads(made) == wanted
    except ValueError:
        is_right = False
    if not is_right:
        raise CommandError(f"{source}: it is written in a way that cannot be edited safely", hint=BY_HAND)
    return made


def _lines(text: str) -> list[str]:
    """Return the lines with their ends. TOML has fewer ends of lines than `str.splitlines`."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _with_lines(lines: Sequence[str], path: Sequence[str], table: Sequence[str], *, gap: str) -> list[str]:
    """Return the lines with those of a table in the place of its first part, or at the end after an empty line."""
    made: list[str] = []
    is_there = False
    # of the part before: it stays if the next part is that of another table
    tail: list[str] = []
    for block in _blocks(lines):
        header = _header_path("".join(block[:1]))
        if header[: len(path)] != list(path):
            made += [*tail, *block]
            tail = []
            continue
        if not is_there:
            made += table
            # Its own header stays as it is written. That of a table within it does not.
            if header == list(path):
                made[-len(table)] = block[0]
        is_there = True
        tail = _tail(block)
    if is_there:
        return [*made, *tail]
    if "".join(made[-1:]).strip():
        made.append(gap)
    return [*made, *table]


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield the lines of each table, and before them those without one.

    A line in a text or a list of several lines may look like a header. It is one only if the lines before it are
    complete.
    """
    block: list[str] = []
    for line in lines:
        if _header_path(line) and _is_complete(block):
            yield block
            block = []
        block.append(line)
    yield block


def _is_complete(block: list[str]) -> bool:
    try:
        tomllib.loads("".join(block))
    except ValueError:
        return False
    return True


def _tail(lines: list[str]) -> list[str]:
    """Return the comments and empty lines at the end of a table: they belong to the next one."""
    at = len(lines)
    while at and lines[at - 1].partition("#")[0].strip() == "":
        at -= 1
    return lines[at:]


def _header_path(line: str) -> list[str]:
    """Return the keys of a header, by the reader of TOML itself; none for any other line."""
    if not _HEADER.match(line):
        return []
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
    """Return a basic string: JSON's escapes are TOML's, except that DEL must also be escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
