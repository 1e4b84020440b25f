"""Edits the text of a JSON file of servers, and replaces such a file: with a backup, whole or not at all."""

from __future__ import annotations

import json
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolweave._files import read_file
from toolweave._json_types import Json, JsonObject, as_array, as_object, object_or_empty
from toolweave.cli._exit_codes import CommandError
from toolweave.config._documents import MAX_BYTES
from toolweave.config._jsonc import key_offsets, parse_json, strip_comments

_WHITESPACE = re.compile(r"\s*")
_COLON = re.compile(r"\s*:\s*")
_CORRECT = "nothing was changed: correct the file, or move it away, and try again"
BY_HAND = "--print or --dry-run shows the entry to put in by hand"


def read_object(text: str, source: str) -> Json:
    """Return the object of a JSON file, with or without comments; an empty file is `{}`.

    Raises:
        CommandError: The text is not a JSON object.
    """
    if not text.strip():
        return {}
    try:
        value = parse_json(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise CommandError(f"{source}: this is not valid JSON: {error.msg} ({where})", hint=_CORRECT) from None
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{source}: this is not valid JSON: {error}", hint=_CORRECT) from None
    members = as_object(value)
    if members is None:
        raise CommandError(f"{source}: it holds no JSON object", hint=_CORRECT)
    return dict(members)


def with_member(text: str, path: Sequence[str], value: Any, source: str) -> str:
    """Return the text with the member at `path` set to `value`; objects on the way are made as needed.

    Raises:
        CommandError: The file is invalid, a parent is not an object, or its syntax is not supported.
    """
    before = read_object(text, source)
    wanted = with_value(before, path, value, source)
    if wanted == before:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    plain = text.replace("\r\n", "\n") if text.strip() else "{}\n"
    offsets = key_offsets(plain)
    depth = len(path)  # of the innermost object on the way that is there
    while depth and tuple(path[:depth]) not in offsets:
        depth -= 1
    missing = list(path[depth:])
    if missing:
        rest: Any = value
        for name in reversed(missing[1:]):
            rest = {name: rest}
        made = _inserted(plain, _value_span(plain, offsets, path[:depth]), missing[0], rest, depth)
    else:
        start, end = _value_span(plain, offsets, path)
        made = plain[:start] + _dumped(value, _indent(plain), depth) + plain[end:]
    # The text is edited by positions, which a way of writing that nobody thought of may shift. Only a text that reads
    # as the wanted document is kept.
    if read_object(made, source) != wanted:
        raise CommandError(f"{source}: it is written in a way that cannot be edited safely", hint=BY_HAND)
    return made.replace("\n", newline)


def with_item(text: str, key: str, item: JsonObject, source: str) -> str:
    """Return the text with an item added to the list at a key, replacing one with its `id`.

    Raises:
        CommandError: As `with_member`.
    """
    before = read_object(text, source)
    items = as_array(before.get(key, []))
    if items is None:
        raise CommandError(f"{source}: {key!r} is not a list")
    if item in items:
        return text
    others = [other for other in items if object_or_empty(other).get("id") != item["id"]]
    if not items or len(others) < len(items):
        return with_member(text, (key,), [*others, item], source)
    newline = "\r\n" if "\r\n" in text else "\n"
    plain = text.replace("\r\n", "\n")
    made = _inserted(plain, _value_span(plain, key_offsets(plain), (key,)), None, item, 1)
    if read_object(made, source) != {**before, key: [*items, item]}:
        raise CommandError(f"{source}: it is written in a way that cannot be edited safely", hint=BY_HAND)
    return made.replace("\n", newline)


def with_value(whole: JsonObject, path: Sequence[str], value: Any, source: str, *, kind: str = "object") -> Json:
    """Return a document with a value at a path; `kind` is the format's word for an object.

    Raises:
        CommandError: A parent is not an object.
    """
    name, *rest = path
    if not rest:
        return {**whole, name: value}
    inner = as_object(whole.get(name, {}))
    if inner is None:
        article = "an" if kind[0] in "aeiou" else "a"
        raise CommandError(f"{source}: {name!r} is not {article} {kind}")
    return {**whole, name: with_value(inner, rest, value, source, kind=kind)}


def _value_span(text: str, offsets: Mapping[Any, list[int]], path: Sequence[str]) -> tuple[int, int]:
    """Return the start and end of a key's value, or of the whole document without a key."""
    clean = strip_comments(text)
    decoder = json.JSONDecoder()
    if not path:
        start = _end(_WHITESPACE, clean, 0)
    else:
        # Of a key that is there twice, parsers use the last one.
        _, key_end = decoder.raw_decode(clean, offsets[tuple(path)][-1])
        start = _end(_COLON, clean, key_end)
    return start, decoder.raw_decode(clean, start)[1]


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    if match:
        return match.end()
    return start


def _inserted(text: str, span: tuple[int, int], name: str | None, value: Any, depth: int) -> str:
    """Return the text with a value added as the last one of the object or, without a name, the list at `span`."""
    start, end = span
    close = end - 1
    unit = _indent(text)
    key = "" if name is None else f"{json.dumps(name, ensure_ascii=False)}: "
    member = f"\n{unit * (depth + 1)}{key}{_dumped(value, unit, depth + 1)}"
    last = start + 1 + len(strip_comments(text[start:end])[1:-1].rstrip())
    tail = text[last:close].rstrip()  # comments, and a comma that need not be there
    is_first = last == start + 1
    comma = "" if is_first or _has_comma(tail) else ","
    return text[:last] + comma + tail + member + f"\n{unit * depth}" + text[close:]


def _has_comma(tail: str) -> bool:
    return "," in re.sub(r"//[^\n]*|/\*.*?\*/", "", tail, flags=re.DOTALL)


def _indent(text: str) -> str:
    # the first line that is indented is so once
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    if found:
        return found[1]
    return "  "


def _dumped(value: Any, unit: str, depth: int) -> str:
    return json.dumps(value, ensure_ascii=False, indent=unit).replace("\n", f"\n{unit * depth}")


def read_text(path: Path) -> tuple[str, str]:
    """Return the text of a file of servers and its encoding; `""` if the file does not exist.

    Raises:
        CommandError: It cannot be read, or is not UTF-8.
    """
    try:
        data = read_file(path, max_bytes=MAX_BYTES)
        encoding = "utf-8-sig" if data.startswith(b"\xef\xbb\xbf") else "utf-8"
        return data.decode(encoding), encoding
    except FileNotFoundError:
        return "", "utf-8"
    except UnicodeDecodeError:
        raise CommandError(f"{path}: the text is not UTF-8") from None
    except OSError as error:
        raise CommandError(f"{path}: the file cannot be read: {error.strerror or error}") from None


def backed_up(path: Path) -> Path | None:
    """Copy the file to a free name beside it, and return the copy's path."""
    if not path.exists():
        return None
    number = 1
    # Never over an earlier copy: that may be the only one of the text that the owner wrote.
    while (backup := path.with_name(f"{path.name}.bak{number}")).exists():
        number += 1
    shutil.copy2(path, backup)
    return backup


def replace_file(path: Path, data: bytes) -> None:
    """Write the file atomically; a new one is readable by its owner alone, as entries may hold secrets."""
    from toolweave.config.trust import write_privately  # imports are late: not every command writes a file

    path.parent.mkdir(parents=True, exist_ok=True)
    write_privately(path, data, mode=stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600)
