"""The scan of definitions and results: text that a person does not see, and text that is meant for a model alone.

A definition is encoded once, and a few quick searches in its bytes settle nearly all; only what is suspicious is read
text by text. Nothing is changed or left out here: a finding is for people, and what a model or a terminal is given is
escaped where it is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

from toolweave._text import hidden_characters, is_plain, one_line, shortened
from toolweave._value import Value
from toolweave.protocol.content import TextContent
from toolweave.schema._problems import path_text
from toolweave.tools._arguments import encode
from toolweave.tools._result import ToolResult
from toolweave.tools._spec import ToolSpec
from toolweave.tools._visible import is_plain_json
from toolweave.trust._definition import definition_of
from toolweave.trust._lookalikes import lookalike_of
from toolweave.trust._patterns import Instruction, instructions_for, instructions_in, may_link, odd_urls_in, words_of
from toolweave.trust._shadowing import ShadowIndex

FindingKind = Literal["control", "direction", "tag", "hidden", "instruction", "lookalike", "shadowing", "url"]
"""Control characters (escape sequences of terminals are made of them), marks of direction, tag characters, others
without a glyph; text like an instruction; a name like another; another server's tool; an odd address."""

_LONGEST_RESULT = 200_000
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
        detail: What it is, for people; foreign text in it is escaped.
    """

    kind: FindingKind
    tool: str
    server: str | None = None
    where: str = ""
    detail: str = ""

    def __str__(self) -> str:
        return f"tool {shortened(self.tool, 80)!r} flagged: its {self.where} {self.detail}"


def scan_tool(spec: ToolSpec) -> tuple[Finding, ...]:
    """Return the findings in one definition: nearly always none, after a few microseconds."""
    definition = spec.raw or definition_of(spec)
    try:
        data = encode(definition)
    except (
        TypeError,
        ValueError,
        OverflowError,
        RecursionError,
    ):  # made in code, or nested without end: judged elsewhere
        return ()
    plain = is_plain_json(data)
    instructions, links = _suspected(data)
    if plain and not instructions and not links and spec.original_name.isascii():
        return ()
    found = [
        Finding(kind=kind, tool=spec.original_name, server=spec.server, where=path_text(path), detail=detail)
        for path, text in _texts(definition)
        for kind, detail in _judged(text, hidden=not plain, instructions=instructions, links=links)
    ]
    like = lookalike_of(spec.original_name)
    if like is not None:
        detail = f"is written with letters that look like others: it reads as {like!r}"
        found.append(
            Finding(kind="lookalike", tool=spec.original_name, server=spec.server, where="name", detail=detail)
        )
    return tuple(found)


def _suspected(data: bytes) -> tuple[Sequence[Instruction], bool]:
    """Return the instructions that are somewhere in an encoded definition, and whether an odd address is."""
    words = words_of(data)
    if not words:
        return (), False
    instructions, links = instructions_for(words), may_link(words, data)
    if not instructions and not links:
        return (), False
    text = data.decode().replace("\\n", " ")
    return (
        [one for one in instructions if instructions_in(text, (one,))],
        links and next(odd_urls_in(text), None) is not None,
    )


def _judged(
    text: str, *, hidden: bool, instructions: Sequence[Instruction], links: bool
) -> Iterator[tuple[FindingKind, str]]:
    """Yield the findings in one text, for the rules that can apply to its definition."""
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
    for spec in specs:
        found += scan_tool(spec)
        by_server.setdefault(spec.server, []).append(spec)
    for server, own in by_server.items():
        index.update(server or "", own)
    return (*found, *shadowing_findings(index))


def shadowing_findings(index: ShadowIndex) -> Iterator[Finding]:
    """Yield a finding for each definition that speaks of another server's tool, or has a name like one of it."""
    for server, tool, other, owner in index.mentions():
        detail = f"speaks of {other!r}, a tool of server {owner!r}"
        yield Finding(kind="shadowing", tool=tool, server=server, where="description", detail=detail)
    for server, tool, other, owner in index.lookalikes():
        detail = f"looks like {other!r}, a tool of server {owner!r}"
        yield Finding(kind="lookalike", tool=tool, server=server, where="name", detail=detail)


def scan_result(result: ToolResult, *, tool: str = "", server: str | None = None) -> tuple[Finding, ...]:
    """Return the hidden characters in the texts of a result, of each the first 200,000 characters.

    Only characters are looked at: what a tool answers may well be a page with instructions.
    """
    if is_plain_result(result):
        return ()
    text = "\n".join(block.render()[:_LONGEST_RESULT] for block in result.content) or result.text[:_LONGEST_RESULT]
    return tuple(
        Finding(kind=kind, tool=tool, server=server, where="result", detail=detail) for kind, detail in _hidden(text)
    )


def is_plain_result(result: ToolResult) -> bool:
    """Whether the texts of a result surely have no hidden character; on the path of every call."""
    if not result.content:
        return result.structured_content is None or is_plain(result.text[:_LONGEST_RESULT])
    for block in result.content:
        text = block.text if type(block) is TextContent else block.render()
        if not is_plain(text if len(text) <= _LONGEST_RESULT else text[:_LONGEST_RESULT]):
            return False
    return True


def _texts(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield every text in a JSON value with its path; a key is a text at the path of its value."""
    if isinstance(value, str):
        yield path, value
    elif len(path) > _DEEPEST:
        return
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            if not is_plain(key):
                yield (*path, key), key
            yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _texts(item, (*path, index))


def _hidden(text: str) -> Iterator[tuple[FindingKind, str]]:
    """Yield each kind of hidden characters in a text, with the commonest of them."""
    by_kind: dict[FindingKind, Counter[str]] = {}
    for char in hidden_characters(text):
        by_kind.setdefault(_kind_of(char), Counter())[char] += 1
    for kind, chars in by_kind.items():
        shown = ", ".join(_named(char) for char, _ in chars.most_common(_SHOWN))
        more = f" and {len(chars) - _SHOWN} more" if len(chars) > _SHOWN else ""
        yield kind, f"has {_NAMES[kind]}, {chars.total()} in all: {shown}{more}"


def _kind_of(char: str) -> FindingKind:
    if char <= "\x9f":
        return "control"
    if "\U000e0000" <= char <= "\U000e007f":
        return "tag"
    if char in "\u061c\u200e\u200f" or "\u202a" <= char <= "\u202e" or "\u2066" <= char <= "\u2069":
        return "direction"
    return "hidden"


def _named(char: str) -> str:
    import unicodedata  # hardly any definition needs it

    name = unicodedata.name(char, "")
    return f"U+{ord(char):04X}{f' {name}' if name else ''}"


def _quoted(text: str) -> str:
    return repr(one_line(text, 120))
