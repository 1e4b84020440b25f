"""A config file's text as a value, with the line of every key. Knows JSON, YAML and TOML, and no servers."""

from __future__ import annotations

import json
import re
import stat
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from toolweave._files import read_file
from toolweave._json_types import JsonObject, as_object, as_sequence, object_or_empty
from toolweave._masking import MASK
from toolweave._value import Value
from toolweave.config._jsonc import KeyPath, key_offsets, parse_json
from toolweave.config._secret import looks_secret
from toolweave.errors import ConfigError

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 10_000_000
MAX_YAML_BYTES = 1_000_000  # its parser is a hundred times slower
MAX_TOML_BYTES = 1_000_000  # so is its parser
# of a dotted key in TOML, which is read in time and memory proportional to their square
MAX_KEY_PARTS = 50
# of arrays and objects; code that walks through a value calls itself for each level
MAX_DEPTH = 100
MAX_YAML_NODES = 200_000  # counted with every alias spelled out
_MAX_SCAN = 2_000_000  # beyond, errors go without lines
# characters on both sides of an excerpt in which a value may begin or end
_EXCERPT_REACH = 10_000
_SHOWN_VALUES = ("command", "name", "type", "transport", "cwd")


class ConfigDocument(Value, frozen=True, kw_only=True):
    """One parsed file.

    Attributes:
        value: The parsed content.
        path: The file's name for messages.
        lines: The 1-based lines of each key path; a repeated key has several.
    """

    value: Any  # any JSON value, and dates from TOML and YAML
    path: str
    lines: Mapping[KeyPath, list[int]] = msgspec.field(default_factory=dict[KeyPath, "list[int]"])

    def line(self, path: KeyPath) -> int | None:
        """Return the line of the last occurrence of a key, or None."""
        if path in self.lines:
            return self.lines[path][-1]
        return None

    def repeated(self, path: KeyPath) -> list[int]:
        """Return the lines of a key that occurs more than once, else nothing."""
        found = self.lines.get(path, [])
        if len(found) > 1:
            return found
        return []

    def repeated_keys(self) -> dict[KeyPath, list[int]]:
        """Return the lines of all keys that occur more than once in one object."""
        repeated: dict[KeyPath, list[int]] = {}
        # A key stands before those below it, and these occur more than once because it does.
        for path, lines in self.lines.items():
            if len(lines) == 1:
                continue
            folders = accumulate(zip(path, strict=True))
            if repeated.keys().isdisjoint(folders):
                repeated[path] = lines
        return repeated


def read_document(path: Path) -> ConfigDocument:
    """Read and parse a file by its suffix, or by its content when the suffix says nothing.

    Raises:
        ConfigError: It cannot be read, is too large, or does not parse; with the line shown.
    """
    shown = str(path)
    try:
        data = read_file(path, max_bytes=MAX_BYTES)
    except FileNotFoundError:
        raise ConfigError("the file does not exist", path=shown) from None
    except (OSError, ValueError) as error:
        reason = error
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        raise ConfigError(f"the file cannot be read: {reason}", path=shown) from None
    return parse_document(_decoded(data, shown), path=shown)


def read_object(path: Path) -> JsonObject:
    """Return the object in a file, an empty one if the file does not exist or holds something else.

    Raises:
        ConfigError: As `read_document`.
    """
    try:
        # A named pipe or a device is not opened: it could block, or have no end.
        is_there = stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        is_there = False
    except OSError:
        is_there = True  # but out of reach: reading it says why, since it may hold a protection
    if is_there:
        return object_or_empty(read_document(path).value)
    return {}


@contextmanager
def errors_in(path: Path) -> Generator[None]:
    """Have the errors of the block name a file, in which the value at fault is."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(error.message, field=error.field, path=str(path)) from None


def parse_document(text: str, *, path: str) -> ConfigDocument:
    """Parse a text as the file of that name.

    Raises:
        ConfigError: As `read_document`.
    """
    # The suffix decides where there is a known one, so that an error is that of the format which the owner meant. The
    # guess by content is for files without one: TOML is looked for first, since almost any text is valid YAML.
    suffix = Path(path).suffix.lower()
    if suffix == ".toml":
        return _parse(text, path, "TOML", _toml)
    if suffix in (".yaml", ".yml"):
        return _parse(text, path, "YAML", _yaml)
    if suffix in (".json", ".jsonc", ".json5", ".code-workspace"):
        return _parse(text, path, "JSON", _json)
    if re.match(_LIKE_TOML, text):
        return _parse(text, path, "TOML", _toml)
    if text.lstrip()[:1] in ("", "{", "[", "/"):
        return _parse(text, path, "JSON", _json)
    return _parse(text, path, "YAML", _yaml)


def _parse(text: str, path: str, kind: str, parse: Callable[[str, str], ConfigDocument]) -> ConfigDocument:
    try:
        document = parse(text, path)
        check_depth(document.value, path)
        return document
    except _Malformed as error:
        where = f" at column {error.column}" if error.column else ""
        shown = _excerpt(text, error.line, error.column)
        message = f"this is not valid {kind}: {error.reason}{where}{shown}"
        raise ConfigError(message, path=path, line=error.line) from None
    except RecursionError:
        raise _too_deep(path) from None


def check_depth(value: object, path: str = "") -> None:
    """Check that a value is not nested too deeply for code that walks through it.

    Raises:
        ConfigError: It has more than `MAX_DEPTH` levels of arrays and objects, or contains itself.
    """
    # Level by level and not by recursion, which a hostile document would exhaust before it is found to be too deep.
    level: list[object] = [value]
    for _ in range(MAX_DEPTH + 1):
        # Each container once, however many paths lead to it: a few aliases can make billions of paths.
        containers = {id(one): one for one in level if _is_container(one)}
        if not containers:
            return
        level = []
        for container in containers.values():
            level += _members(container)
    raise _too_deep(path)


def _is_container(value: object) -> bool:
    return isinstance(value, (Mapping, list, tuple))


def _members(container: object) -> Iterable[object]:
    members = as_object(container)
    if members is not None:
        return members.values()
    return as_sequence(container) or ()


def _too_deep(path: str) -> ConfigError:
    return ConfigError(f"it is nested more than {MAX_DEPTH} levels deep", path=path or None)


class _Malformed(Exception):
    def __init__(self, reason: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.column = column


def _decoded(data: bytes, path: str) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    else:
        encoding = "utf-8-sig"
    try:
        # Lines are counted by line feeds, here and in the parsers.
        return data.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"the text is not valid {encoding[:6].upper().rstrip('-')}", path=path, line=line) from None


def _json(text: str, path: str) -> ConfigDocument:
    if not text.strip():
        return ConfigDocument(value={}, path=path)
    try:
        value = parse_json(text)
    except json.JSONDecodeError as error:
        raise _Malformed(error.msg.removesuffix(" at"), error.lineno, error.colno) from None
    except ValueError as error:  # an integer with thousands of digits
        raise _Malformed(str(error)) from None
    if len(text) > _MAX_SCAN:
        return ConfigDocument(value=value, path=path)
    # Offsets become lines by bisection: counting line ends for each key would take quadratic time in a long file.
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    lines: dict[KeyPath, list[int]] = {}
    for key, offsets in key_offsets(text).items():
        lines[key] = [bisect_right(starts, offset) for offset in offsets]
    return ConfigDocument(value=value, path=path, lines=lines)


def _toml(text: str, path: str) -> ConfigDocument:
    import tomllib  # most configs are JSON

    if len(text) > MAX_TOML_BYTES:
        raise ConfigError(f"the TOML is larger than {MAX_TOML_BYTES // 1_000_000} MB", path=path)
    _check_keys(text)
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _malformed_toml(str(error), text) from None
    except ValueError as error:  # a date such as 2025-13-01, a number with too many digits
        raise _Malformed(str(error)) from None
    return ConfigDocument(value=value, path=path, lines=_toml_lines(text))


def _malformed_toml(message: str, text: str) -> _Malformed:
    """Return the parser's error with the position that it has only in its text."""
    place = re.fullmatch(r"(.*?) ?\(at line (\d+), column (\d+)\)", message, re.DOTALL)
    if place is not None:
        return _Malformed(place[1], int(place[2]), int(place[3]))
    return _Malformed(message.removesuffix(" (at end of document)"), text.count("\n") + 1)


def _check_keys(text: str) -> None:
    """Check that no dotted key has too many parts.

    Each match takes all parts that follow each other and no match begins within another, so the search is linear.
    """
    # The parser makes a table for each part of a key, by recursion: a key of thousands of parts would exhaust the
    # stack. Hardly any text has so many dots, so the patterns are hardly ever used.
    if text.count(".") < MAX_KEY_PARTS:
        return
    for found in re.finditer(_DOTTED_KEY, text):
        # dots inside of quotes only make it look longer
        if found[0].count(".") < MAX_KEY_PARTS:
            continue
        if len(re.findall(_KEY_PART, found[0])) > MAX_KEY_PARTS:
            line = text.count("\n", 0, found.start()) + 1
            raise _Malformed(f"a key has more than {MAX_KEY_PARTS} dotted parts", line)


_KEY_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?)"""
_DOTTED_KEY = rf"{_KEY_PART}(?:[ \t]*+\.[ \t]*+{_KEY_PART})*+"
_LIKE_TOML = r"""\s*(?:\#[^\n]*\n\s*)*(\[\[?[A-Za-z"'][^\]\n,{:]*\]\]?\s*(\#.*)?(\n|$)|[\w."'-]+\s*=)"""


_TOML_KEY = r"""\s*(?:"([^"\\]*)"|'([^']*)'|([\w-]+))\s*(\.)?"""


def _toml_lines(text: str) -> dict[KeyPath, list[int]]:
    # The parser keeps no positions, so the lines are looked for in the text. Lines of a multi-line string may look like
    # keys, and a wrong line in an error is the worst that comes of it: no value is taken from here.
    lines: dict[KeyPath, list[int]] = {}
    table: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        header = re.match(r"\s*(\[\[?)", line)
        if header:
            table = _dotted(line, header.end())
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            keys = table
        elif re.match(r"""\s*["'\w][^=#]*=""", line):
            keys = (*table, *_dotted(line, 0))
        else:
            continue
        for length in range(1, len(keys) + 1):
            lines.setdefault(keys[:length], [number])
    return lines


def _dotted(line: str, start: int) -> KeyPath:
    keys: list[str] = []
    while match := re.compile(_TOML_KEY).match(line, start):
        keys.append(next(part for part in match.groups()[:3] if part is not None))
        start = match.end()
        if not match[4]:
            break
    return tuple(keys)


def _yaml(text: str, path: str) -> ConfigDocument:
    import yaml  # slow to import, and most configs are JSON

    if len(text) > MAX_YAML_BYTES:
        raise ConfigError(f"the YAML is larger than {MAX_YAML_BYTES // 1_000_000} MB", path=path)
    try:
        # Twice: nodes have the lines and are cheap, whatever aliases stand for. Only a document whose nodes were
        # counted is made into values.
        node = cast("yaml.Node | None", yaml.compose(text, Loader=yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType]
        lines: dict[KeyPath, list[int]] = {}
        if node is not None:
            _count_nodes(node, {})
            _yaml_lines(node, (), lines)
        value: Any = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = error.problem or error.context or "unreadable"
        if mark is None:
            raise _Malformed(reason) from None
        raise _Malformed(reason, mark.line + 1, mark.column + 1) from None
    except yaml.reader.ReaderError as error:
        raise _Malformed("a character is not allowed", text.count("\n", 0, error.position) + 1) from None
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError):  # its constructors check little
        raise _Malformed("a value does not fit its type, such as a date in month 13") from None
    if value is None:
        value = {}
    return ConfigDocument(value=value, path=path, lines=lines)


def _count_nodes(node: yaml.Node, seen: dict[int, int]) -> int:
    """Count the nodes as if every alias were written out; few lines can expand to billions.

    `seen` has the count of each node that is done, and 0 for one whose children are counted at the moment.
    """
    import yaml  # the caller has it

    known = seen.get(id(node))
    if known == 0:
        raise _Malformed("an alias refers to what it is part of", node.start_mark.line + 1)
    if known is not None:
        return known
    seen[id(node)] = 0
    children: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            children += (key, value)
    elif isinstance(node, yaml.SequenceNode):
        children += node.value
    total = 1
    for child in children:
        total += _count_nodes(child, seen)
    if total > MAX_YAML_NODES:
        raise _Malformed("its aliases stand for too much", node.start_mark.line + 1)
    seen[id(node)] = total
    return total


def _yaml_lines(node: yaml.Node, path: KeyPath, lines: dict[KeyPath, list[int]]) -> None:
    import yaml  # the caller has it

    # No key of an entry lies deeper.
    if len(path) > 6:
        return
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*path, str(key.value))
            lines.setdefault(inner, []).append(key.start_mark.line + 1)
            _yaml_lines(value, inner, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            lines.setdefault((*path, index), []).append(value.start_mark.line + 1)
            _yaml_lines(value, (*path, index), lines)


def _excerpt(text: str, line: int | None, column: int | None) -> str:
    """Show the line with a caret under the column, without the values that may be secrets."""
    if line is None:
        return ""
    rows = text.split("\n")
    is_outside = line < 1 or line > len(rows)
    if is_outside or not rows[line - 1].strip():
        return ""
    place = 0 if column is None else column - 1
    # The row is cut before values are looked for, so that a line of megabytes costs no more than another, and far
    # enough from the excerpt that no value begins outside of it.
    cut = max(0, place - _EXCERPT_REACH)
    row = rows[line - 1][cut : place + _EXCERPT_REACH]
    printable = "".join(char if char.isprintable() else " " for char in row)
    row, place = _without_values(printable, place - cut)
    start = max(0, place - 80)
    caret = "" if column is None else f"\n      | {' ' * (place - start)}^"
    return f"\n{line:5} | {row[start : place + 60]}{caret}"


_HIDDEN = (
    r"""(?P<key>[\w.$-]{1,80})(?P<sep>["']?\s*[:=]\s*|["']\s*,\s*)"""
    r"""(?P<value>"(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s"',{}\[\]][^"',{}\[\]]*)"""
    r"""|(?P<long>[\w+/.=-]{16,})"""
)


def without_values(row: str) -> str:
    """Return a line of a config with the values in it masked that may be secrets."""
    return _without_values(row, 0)[0]


def _without_values(row: str, place: int) -> tuple[str, int]:
    """Mask the values in a line; also return the new position of the column `place`."""
    out: list[str] = []
    end = 0
    # Each mask before the column moves it by the difference of lengths. A column inside of a masked value points to the
    # mask.
    moved = place
    for match in re.finditer(_HIDDEN, row):
        if match["long"]:
            hidden = _hidden_word(match["long"])
        else:
            hidden = _hidden_pair(match)
        if hidden is None:
            continue
        out += (row[end : match.start()], hidden)
        if match.end() <= place:
            moved += len(hidden) - len(match[0])
        elif match.start() < place:
            moved = min(moved, sum(map(len, out)) - len(MASK))
        end = match.end()
    return "".join([*out, row[end:]]), max(0, moved)


def _hidden_pair(match: re.Match[str]) -> str | None:
    key = match["key"]
    sep = match["sep"]
    quoted = match["value"][0] in "\"'"
    # A quoted text may be a secret under any name. A number, a word or YAML's plain text without quotes is shown unless
    # its name is that of a secret.
    is_named_text = quoted and (":" in sep or "=" in sep)
    may_be_secret = is_named_text and key not in _SHOWN_VALUES
    if not may_be_secret and not looks_secret(key):
        return None
    if quoted:
        return f'{key}{sep}"{MASK}"'
    return f"{key}{sep}{MASK}"


def _hidden_word(word: str) -> str | None:
    """Return the mask for a long word with letters and digits, which may be a token."""
    if re.search(r"\d", word) and re.search("[A-Za-z]", word):
        return MASK
    return None
