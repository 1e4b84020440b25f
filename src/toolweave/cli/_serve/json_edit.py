"""Setting one member of a JSON text that people edit: comments, order, indentation and all other bytes are kept.

Works on texts and knows no editor. The result is parsed and verified before it is returned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolweave.cli._exit_codes import CommandError
from toolweave.config._jsonc import key_offsets, parse_json, strip_comments

__all__ = ["read_object", "with_member"]

_WHITESPACE = re.compile(r"\s*")
_COLON = re.compile(r"\s*:\s*")


def read_object(text: str, source: str) -> dict[str, Any]:
    """Return the object of a JSON file, with or without comments; an empty file is `{}`.

    Raises:
        CommandError: It is no JSON object.
    """
    if not text.strip():
        return {}
    try:
        value = parse_json(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise CommandError(f"{source}: this is no valid JSON: {error.msg} ({where})") from None
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{source}: this is no valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise CommandError(f"{source}: it holds no JSON object")
    return cast("dict[str, Any]", value)


def with_member(text: str, path: Sequence[str], value: Mapping[str, Any], source: str) -> str:
    """Return the text with the member at `path` set to `value`; objects on the way are made as needed.

    Raises:
        CommandError: The file is invalid, a parent is no object, or its syntax is not supported.
    """
    before = read_object(text, source)
    wanted = _set(before, path, value, source)
    if wanted == before:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    plain = text.replace("\r\n", "\n") if text.strip() else "{}\n"
    offsets = key_offsets(plain)
    depth = next(length for length in range(len(path), -1, -1) if length == 0 or tuple(path[:length]) in offsets)
    missing = list(path[depth:])
    if missing:
        rest: Any = value
        for name in reversed(missing[1:]):
            rest = {name: rest}
        made = _inserted(plain, _value_span(plain, offsets, path[:depth]), missing[0], rest, depth)
    else:
        start, end = _value_span(plain, offsets, path)
        made = plain[:start] + _dumped(value, _indent(plain), depth) + plain[end:]
    if read_object(made, source) != wanted:
        hint = "--print shows the entry to put in by hand"
        raise CommandError(f"{source}: it is written in a way that cannot be edited safely", hint=hint)
    return made.replace("\n", newline)


def _set(whole: Mapping[str, Any], path: Sequence[str], value: Any, source: str) -> dict[str, Any]:
    name, *rest = path
    if not rest:
        return {**whole, name: value}
    inner = whole.get(name, {})
    if not isinstance(inner, dict):
        raise CommandError(f"{source}: {name!r} is no object")
    return {**whole, name: _set(cast("dict[str, Any]", inner), rest, value, source)}


def _value_span(text: str, offsets: Mapping[Any, list[int]], path: Sequence[str]) -> tuple[int, int]:
    """Return the start and end of a key's value, or of the whole document without a key."""
    clean = strip_comments(text)
    decoder = json.JSONDecoder()
    if not path:
        start = _end(_WHITESPACE, clean, 0)
    else:
        _, key_end = decoder.raw_decode(clean, offsets[tuple(path)][-1])
        start = _end(_COLON, clean, key_end)
    return start, decoder.raw_decode(clean, start)[1]


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return match.end() if match else start


def _inserted(text: str, span: tuple[int, int], name: str, value: Any, depth: int) -> str:
    """Return the text with a member added as the last one of the object at `span`."""
    start, end = span
    close = end - 1
    unit = _indent(text)
    member = f"\n{unit * (depth + 1)}{json.dumps(name, ensure_ascii=False)}: {_dumped(value, unit, depth + 1)}"
    last = start + 1 + len(strip_comments(text[start:end])[1:-1].rstrip())
    tail = text[last:close].rstrip()  # comments, and a comma that need not be there
    if last == start + 1 or _has_comma(tail):
        comma = ""
    else:
        comma = ","
    return text[:last] + comma + tail + member + f"\n{unit * depth}" + text[close:]


def _has_comma(tail: str) -> bool:
    return "," in re.sub(r"//[^\n]*|/\*.*?\*/", "", tail, flags=re.DOTALL)


def _indent(text: str) -> str:
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)  # the first line that is indented is so once
    return found[1] if found else "  "


def _dumped(value: Any, unit: str, depth: int) -> str:
    return json.dumps(value, ensure_ascii=False, indent=unit).replace("\n", f"\n{unit * depth}")
