"""The file of a recorded session: JSON lines, one message each, versioned, written at once, without secrets.

Defines the file format; recording and replay are elsewhere.

    {"cassette": 1, "server": "weather"}
    {"send": {"id": 1, "method": "tools/call", "params": {"name": "forecast", "arguments": {"city": "Oslo"}}}}
    {"receive": {"id": 1, "result": {"content": [{"type": "text", "text": "rain"}]}}}
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

from toolweave._json_types import Json
from toolweave._masking import MASK

FORMAT = 1
"""The version of the format; a cassette of another is refused."""
Entry: TypeAlias = dict[str, Any]
"""One line: an object with one member, the kind of event (`send`, `receive`, `failed`, ...)."""

# Half a character, which JSON can carry and UTF-8 cannot.
_ODD_TEXT = "surrogatepass"
_ALWAYS_MASKED = frozenset(
    ("authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key", "mcp-session-id")
)
"""Names of headers that carry credentials, wherever a server repeats them."""


def masked(value: Any, redact: Callable[[str], str]) -> Any:
    """Return a JSON value with `redact` applied to every text in it, names included, and credential headers masked."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        members: Json = {}
        for key, item in cast("Mapping[Any, Any]", value).items():
            name = str(key)
            is_secret = name.lower() in _ALWAYS_MASKED and isinstance(item, str)
            members[redact(name)] = MASK if is_secret else masked(item, redact)
        return members
    if isinstance(value, (list, tuple)):
        return [masked(item, redact) for item in cast("list[Any]", value)]
    return value


def same(recorded: Any, sent: Any) -> bool:
    """Return whether a request equals a recorded one; masked parts match anything."""
    if isinstance(recorded, str) and isinstance(sent, str):
        if MASK not in recorded:
            return recorded == sent
        return re.fullmatch(".*".join(map(re.escape, recorded.split(MASK))), sent, re.DOTALL) is not None
    if isinstance(recorded, dict) and isinstance(sent, dict):
        ours = cast("dict[str, Any]", recorded)
        theirs = cast("dict[str, Any]", sent)
        if ours.keys() != theirs.keys():
            return False
        return all(same(value, theirs[key]) for key, value in ours.items())
    if isinstance(recorded, list) and isinstance(sent, list):
        pairs = cast("list[Any]", recorded), cast("list[Any]", sent)
        return len(pairs[0]) == len(pairs[1]) and all(map(same, *pairs))
    # true is not a number in JSON
    return isinstance(recorded, bool) == isinstance(sent, bool) and recorded == sent


def write_cassette(path: Path, server: str, entries: Iterable[Entry]) -> None:
    """Write a cassette atomically, replacing an older one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [_line({"cassette": FORMAT, "server": server}), *map(_line, entries)]
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors=_ODD_TEXT, newline="\n") as file:
            file.writelines(lines)
        # A temporary file is its owner's alone; a cassette is committed.
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_cassette(path: Path) -> tuple[str, list[Entry]]:
    """Return the server's name and the entries of a cassette.

    Raises:
        FileNotFoundError: There is none.
        ValueError: It is not a cassette, or one of another version; names the line.
    """
    try:
        text = path.read_text(encoding="utf-8", errors=_ODD_TEXT)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no cassette {str(path)!r}; record one with record(target, path)") from None
    entries: list[Entry] = []
    # Not `splitlines`, which also splits at U+2028 and others that a JSON string may hold.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            entry: Any = json.loads(line)
        except ValueError as exc:
            raise ValueError(f"{path}:{number}: this is not JSON: {exc}; record the cassette again") from None
        if not isinstance(entry, dict):
            raise ValueError(f"{path}:{number}: a line of a cassette is an object; record the cassette again")
        entries.append(cast("Entry", entry))
    version = entries[0].get("cassette") if entries else None
    if version != FORMAT:
        raise ValueError(f"{path}: this is not a cassette of format {FORMAT}, but {version!r}; record it again")
    return str(entries[0].get("server") or path.stem), entries[1:]


def _line(entry: Entry) -> str:
    return json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n"
