"""The scan of definitions and results: text that a person does not see, and text that is meant for a model alone.

A definition is encoded once, and a few quick searches in its bytes settle nearly all; only what is suspicious is read
text by text. Nothing is changed or left out here: a finding is for readers, and the text for a model or a terminal is
escaped where it is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

from toolweave._text import JOINERS, hidden_joiners, is_plain, one_line, shortened
from toolweave._value import Value
from toolweave.definitions._definition import definition_of
from toolweave.definitions._lookalikes import lookalike_of
from toolweave.definitions._patterns import (
    Instruction,
    instructions_for,
    instructions_in,
    may_link,
    odd_urls_in,
    words_of,
)
from toolweave.definitions._shadowing import ShadowIndex
from toolweave.protocol.content import TextContent
from toolweave.schema.problems import path_text
from toolweave.tools import ToolResult, ToolSpec
from toolweave.tools.arguments import encode
from toolweave.tools.visible import is_plain_json

FindingKind = Literal[
    "control", "direction", "tag", "hidden", "instruction", "lookalike", "shadowing", "url", "unscanned"
]
"""Control characters (escape sequences of terminals are made of them), marks of direction, tag characters, others
without a glyph; text like an instruction; a name like another; another server's tool; an odd address; a definition
that is too long, or of which too much is suspicious, to be scanned whole."""

_MAX_RESULT = 200_000
_MAX_TEXT = 200_000
_MAX_DEFINITION = 500_000
_MAX_LIST = 2_000_000
"""Characters that are read of a text, of a suspicious definition, and of all suspicious definitions of a list: each
is far more than any known server has, and a fraction of a second."""

_MAX_FINDINGS = 20
_MAX_SHADOWS = 200
_MAX_JOINERS = 20_000
_COST_OF_A_VALUE = 10
_COST_OF_A_DEFINITION = 1_000
_MAX_PLACE = 200
_SHOWN = 3
_DEEPEST = 100
_NAMES: dict[FindingKind, str] = {
    "control": "control characters",
    "direction": "marks of direction",
    "tag": "tag characters",
    "hidden": "characters that cannot be seen",
}


class Finding(Value, frozen=True, kw_only=True):
    """One suspicious part of a server's text; nothing proves bad intent.

    Attributes:
        kind: The kind of it.
        tool: The server's own name of the tool.
        server: The server, or None for a tool without one.
        where: The place in the definition, such as `inputSchema.properties.path.description`; `result` for a result.
        detail: A description for readers; foreign text in it is escaped.
    """

    kind: FindingKind
    tool: str
    server: str | None = None
    where: str = ""
    detail: str = ""

    def __str__(self) -> str:
        return f"tool {shortened(self.tool, 80)!r} flagged: its {self.where} {self.detail}"


class _TooLongError(Exception):
    """Raised when more characters would be read than are left."""


class ScanBudget:
    """The characters that are still read of the suspicious definitions of one list.

    Attributes:
        is_reported: Whether a finding says that the rest of the list is not scanned.
        was_too_deep: Whether the present definition is nested more deeply than it is read.
    """

    __slots__ = ("_here", "_left", "is_reported", "was_too_deep")

    def __init__(self, characters: int = _MAX_LIST) -> None:
        self._left = characters
        self._here = 0
        self.is_reported: bool = False
        self.was_too_deep: bool = False

    def begin(self) -> bool:
        """Begin with a definition; return whether anything may be read of it."""
        self.was_too_deep = False
        self._here = min(_MAX_DEFINITION, self._left)
        # Reading costs time beside the characters: a list of very many short suspicious definitions also has to end.
        self._left -= _COST_OF_A_DEFINITION
        return self._here > 0

    def spend(self, characters: int) -> None:
        """Spend characters that are read.

        Raises:
            _TooLongError: Nothing more of this definition may be read.
        """
        self._here -= characters
        self._left -= characters
        if self._here < 0:
            raise _TooLongError


def scan_tool(spec: ToolSpec, budget: ScanBudget | None = None) -> tuple[Finding, ...]:
    """Return the findings in one definition: nearly always none, after a few microseconds.

    Args:
        spec: The definition.
        budget: The budget of all definitions of its list. One that passes it, or is too long by itself,
            is scanned in part, and the last finding says so.
    """
    definition = spec.raw or definition_of(spec)
    try:
        data = encode(definition)
    # Made in code, or nested without end: judged elsewhere.
    except (TypeError, ValueError, OverflowError, RecursionError):
        return ()
    plain = is_plain_json(data)
    instructions, links = _suspected(data)
    is_suspicious = bool(instructions) or links
    if plain and not is_suspicious and spec.original_name.isascii():
        return ()
    budget = budget or ScanBudget()
    if not budget.begin():
        if budget.is_reported:
            return ()
        budget.is_reported = True
        detail = "is not scanned, nor are those behind it: too much of the list is suspicious"
        return (_finding(spec, "unscanned", "definition", detail),)
    read = _read(definition, budget, len(data), not plain, instructions, links)
    found = [_finding(spec, *one) for one in read]
    like = lookalike_of(spec.original_name)
    if like is not None:
        detail = f"is written with letters that look like others: it reads as {like!r}"
        found.append(_finding(spec, "lookalike", "name", detail))
    return tuple(found)


def _read(
    definition: Any,  # any JSON value
    budget: ScanBudget,
    size: int,
    hidden: bool,
    instructions: Sequence[Instruction],
    links: bool,
) -> Iterator[tuple[FindingKind, str, str]]:
    """Yield kind, place and detail of each finding in a definition, within the budget."""
    found = 0
    whole = True
    try:
        for path, text in _texts(definition, budget):
            for kind, detail in _judged(text, hidden=hidden, instructions=instructions, links=links):
                if found == _MAX_FINDINGS:
                    yield "unscanned", "definition", "has more that is suspicious"
                    return
                found += 1
                yield kind, shortened(path_text(path), _MAX_PLACE), detail
            whole = whole and len(text) <= _MAX_TEXT
    except _TooLongError:
        whole = False
    if not whole:
        yield "unscanned", "definition", f"is too long to be scanned: of its {size:,} bytes only a part was"
    if budget.was_too_deep:
        detail = f"is nested too deeply to be scanned: values more than {_DEEPEST} levels down were not"
        yield "unscanned", "definition", detail


def _finding(spec: ToolSpec, kind: FindingKind, where: str, detail: str) -> Finding:
    return Finding(kind=kind, tool=spec.original_name, server=spec.server, where=where, detail=detail)


def _suspected(data: bytes) -> tuple[Sequence[Instruction], bool]:
    """Return the instructions that are somewhere in an encoded definition, and whether an odd address is."""
    words = words_of(data)
    if not words:
        return (), False
    instructions = instructions_for(words)
    links = may_link(words, data)
    if not instructions and not links:
        return (), False
    # An instruction may be broken over lines, and a line break is an escape in the encoded text.
    text = data.decode().replace("\\n", " ")
    return (
        [one for one in instructions if instructions_in(text, (one,))],
        links and next(odd_urls_in(text), None) is not None,
    )


def _judged(
    text: str, *, hidden: bool, instructions: Sequence[Instruction], links: bool
) -> Iterator[tuple[FindingKind, str]]:
    """Yield the findings in one text, for the rules that can apply to its definition."""
    text = text[:_MAX_TEXT]
    if hidden:
        yield from _hidden(text)
    if instructions and (said := instructions_in(text, instructions)):
        yield "instruction", f"reads like an instruction to the model: {_quoted(said)}"
    if links:
        for address, why in odd_urls_in(text):
            yield "url", f"has an odd address, {why}: {_quoted(address)}"


def scan_tools(specs: Iterable[ToolSpec]) -> tuple[Finding, ...]:
    """Return the findings in definitions of one or many servers, shadowing between these included."""
    index = ShadowIndex()
    found: list[Finding] = []
    by_server: dict[str | None, list[ToolSpec]] = {}
    budgets: dict[str | None, ScanBudget] = {}
    for spec in specs:
        found += scan_tool(spec, budgets.setdefault(spec.server, ScanBudget()))
        by_server.setdefault(spec.server, []).append(spec)
    for server, own in by_server.items():
        index.update(server or "", own)
    return (*found, *shadowing_findings(index))


def shadowing_findings(index: ShadowIndex) -> Iterator[Finding]:
    """Yield a finding for each definition that speaks of another server's tool, or has a name like one of it.

    After 200 of one kind about one server, the last one reports how many more there are.
    """
    spoken = Counter[str]()
    alike = Counter[str]()
    last: dict[str, str] = {}
    for server, tool, other, owner in index.mentions():
        spoken[server] += 1
        last[server] = tool
        if spoken[server] <= _MAX_SHADOWS:
            detail = f"speaks of {other!r}, a tool of server {owner!r}"
            yield Finding(kind="shadowing", tool=tool, server=server, where="description", detail=detail)
    for server, tool, other, owner in index.lookalikes():
        alike[server] += 1
        last[server] = tool
        if alike[server] <= _MAX_SHADOWS:
            detail = f"looks like {other!r}, a tool of server {owner!r}"
            yield Finding(kind="lookalike", tool=tool, server=server, where="name", detail=detail)
    for server, tool in last.items():
        more = max(0, spoken[server] - _MAX_SHADOWS) + max(0, alike[server] - _MAX_SHADOWS)
        if more:
            detail = f"is the last of {more:,} more that speak of other servers' tools or look like them"
            yield Finding(kind="unscanned", tool=tool, server=server, where="definition", detail=detail)


def scan_result(result: ToolResult, *, tool: str = "", server: str | None = None) -> tuple[Finding, ...]:
    """Return the hidden characters in the texts of a result, of each the first 200,000 characters, 2 million in all.

    Only characters are looked at: what a tool answers may well be a page with instructions.
    """
    if is_plain_result(result):
        return ()
    text = "\n".join(block.render()[:_MAX_RESULT] for block in result.content) or _without_blocks(result)
    text = text[:_MAX_LIST]
    found: list[Finding] = []
    for kind, detail in _hidden(text):
        finding = Finding(kind=kind, tool=tool, server=server, where="result", detail=detail)
        found.append(finding)
    return tuple(found)


def is_plain_result(result: ToolResult) -> bool:
    """Whether the texts of a result surely have no hidden character; on the path of every call."""
    if not result.content:
        return result.structured_content is None or is_plain(_without_blocks(result))
    for block in result.content:
        # which may decode the text that it shows
        if type(block) is TextContent:
            text = block.text
        else:
            text = block.render()
        if len(text) > _MAX_RESULT:
            text = text[:_MAX_RESULT]
        if not is_plain(text):
            return False
    return True


def _without_blocks(result: ToolResult) -> str:
    """Return the beginning of the text of a result without blocks: mostly of its structured content as JSON."""
    if result.structured_content is not None:
        try:
            data = encode(result.structured_content)
        except (TypeError, ValueError, OverflowError):  # a local tool's own value
            return result.text[:_MAX_RESULT]
        # A character has at most four bytes, and the last one may be cut.
        return data[: _MAX_RESULT * 4].decode(errors="ignore")[:_MAX_RESULT]
    return result.text[:_MAX_RESULT]


def _texts(
    value: Any, budget: ScanBudget, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield every text in a JSON value with its path; a key is a text at the path of its value.

    Raises:
        _TooLongError: The budget is spent.
    """
    if isinstance(value, str):
        budget.spend(_COST_OF_A_VALUE + min(len(value), _MAX_TEXT))
        yield path, value
        return
    budget.spend(_COST_OF_A_VALUE)
    # These generators are nested as deeply as the value, and Python limits the depth of calls.
    if len(path) > _DEEPEST:
        budget.was_too_deep = True
        return
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            budget.spend(len(key))
            if not is_plain(key):
                yield (*path, key), key
            yield from _texts(item, budget, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _texts(item, budget, (*path, index))


def _hidden(text: str) -> Iterator[tuple[FindingKind, str]]:
    """Yield each kind of hidden characters in a text, with the commonest of them."""
    counts = Counter(text)
    joiners = Counter(hidden_joiners(text, _MAX_JOINERS))
    by_kind: dict[FindingKind, Counter[str]] = {}
    for char in counts:
        # Joiners are right within emoji and many scripts, so only those in other places count.
        if char in JOINERS:
            count = joiners[char]
        elif is_plain(char):
            count = 0
        else:
            count = counts[char]
        if count:
            by_kind.setdefault(_kind_of(char), Counter())[char] = count
    for kind, chars in by_kind.items():
        shown = ", ".join(_named(char) for char, _ in chars.most_common(_SHOWN))
        if len(chars) > _SHOWN:
            more = f" and {len(chars) - _SHOWN} more"
        else:
            more = ""
        yield kind, f"has {_NAMES[kind]}, {chars.total()} in all: {shown}{more}"


_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that set or change the direction of writing."""


def _kind_of(char: str) -> FindingKind:
    if char <= "\x9f":
        return "control"
    if "\U000e0000" <= char <= "\U000e007f":
        return "tag"
    if char in _DIRECTIONS:
        return "direction"
    return "hidden"


def _named(char: str) -> str:
    import unicodedata  # hardly any definition needs it

    name = unicodedata.name(char, "")
    return f"U+{ord(char):04X}{f' {name}' if name else ''}"


def _quoted(text: str) -> str:
    return repr(one_line(text, 120))
