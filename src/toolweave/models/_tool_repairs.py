"""Errors of a model's API about tools, and the repair: one tool in another form, or none, and the request once more.

An API refuses a whole request for one tool, and each API refuses something else. Its error names the tool by position
(`tools[3].function`), by name (`function 'x'`), by a path into its schema (`$.properties.email.pattern`), or not at
all. The first three cost that tool its schema, then its place; without a name all tools are sent in their simplest
form, once. Repairs of one request are bounded, and the lessons are kept for the model's later requests.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from toolweave._json import decode_json
from toolweave._json_types import JsonObject, array_or_empty, as_object, object_or_empty, text_or_empty
from toolweave._repairs import Repair
from toolweave.errors import ModelError
from toolweave.providers import WireTools
from toolweave.providers._refused_tools import RefusedTools
from toolweave.tools import ToolSpec

_MIN_DESCRIPTION = 64
_MAX_SINGLE = 8
"""Tools that are repaired one by one before all others are sent in their simplest form."""
_MAX_REPAIRS = 24
_SWITCH = "`ToolRules(repair=False)`"
REFUSED_TOOL = Repair(
    given="a tool that a model API refuses by its position, its name or a path into its schema",
    read_as="the tool without strict mode, then with a simplified schema; left out if it is refused again",
    limit=f"{_MAX_REPAIRS} repeated requests in a turn; from {_MAX_SINGLE} refused tools on, all are simplified",
    switch=_SWITCH,
)
UNNAMED_TOOL = Repair(
    given="an error of a model API about a schema without the name of a tool",
    read_as="all tools with simplified schemas",
    limit="once in a turn",
    switch=_SWITCH,
)
REPORTED_BOUND = Repair(
    given="an error of a model API with its maximum of tools, or of characters in a description",
    read_as="the limit of its later requests",
    limit=f"a maximum of fewer than {_MIN_DESCRIPTION} characters is not believed",
    switch=_SWITCH,
)
TOOL_REPAIRS = (REFUSED_TOOL, UNNAMED_TOOL, REPORTED_BOUND)
"""Every repair of the tools of a request."""

_INDEX = (
    re.compile(r"function_?declarations[\[./](\d{1,5})", re.IGNORECASE),
    re.compile(r"\btools[\[./](\d{1,5})", re.IGNORECASE),
)
_SUBJECT = re.compile(r"tool|function|declaration", re.IGNORECASE)
_QUOTED = re.compile(r"['\"`‘“]([A-Za-z0-9_.:-]{1,128})['\"`’”]")
_BARE = re.compile(r"\b(?:function|tool)s?(?: name)?[ :=]+([A-Za-z0-9_-]{1,128})", re.IGNORECASE)
_PATH = re.compile(r"(?:\$|#/?)((?:[./\[][^\s.,;/\[\]]+\]?){2,})")
_PATH_PARTS = re.compile(r"[^./\[\]'\"]+")
_CONTEXT = re.compile(r"context=\(([^)]{1,500})\)", re.IGNORECASE)
_SCHEMA_WORDS = re.compile(
    r"\bschemas?\b|look-?(?:around|ahead|behind)|\bregex|regular expression|\bpatterns?\b|grammar|keyword|"
    r"function.?declaration|input_?schema",
    re.IGNORECASE,
)
_LIMIT = r"(?:maximum|max|at most|up to|no more than|limit)"
_MAX_TOOLS = (
    re.compile(r"tools'?: array too long.{0,60}?maximum length (\d{1,6})", re.IGNORECASE | re.DOTALL),
    re.compile(_LIMIT + r"[^.\d]{0,60}(\d{1,6}) (?:tools|functions)", re.IGNORECASE),
    re.compile(r"(?:number of|too many) (?:tools|functions)\D{0,80}?" + _LIMIT + r"\D{0,30}(\d{1,6})", re.IGNORECASE),
)
_MAX_DESCRIPTION = re.compile(
    r"description.{0,160}?(?:maximum length|at most|max(?:imum)?(?: of)?|longer than|limit of)\D{0,20}(\d{2,7})",
    re.IGNORECASE | re.DOTALL,
)
_SCHEMA_MEMBERS = (("function", "parameters"), ("parameters",), ("input_schema",), ("parameters_json_schema",))


class SentTools:
    """The tools of one request as they were sent; filled in when the request is written."""

    def __init__(self) -> None:
        self.specs: Sequence[ToolSpec] = ()
        self.wire: WireTools | None = None
        self.entries: Sequence[Any] = ()

    def record(self, specs: Sequence[ToolSpec], wire: WireTools, entries: Sequence[Any]) -> None:
        """Record the definitions, their form, and the entries of the request's list of tools."""
        self.specs = specs
        self.wire = wire
        self.entries = entries


class ToolRepairs:
    """The repairs of one turn's requests.

    Args:
        refused: What the model has learnt about its API.
    """

    def __init__(self, refused: RefusedTools) -> None:
        self._refused = refused
        self._repairs = 0
        self._singles = 0

    def of_named(self, error: ModelError, sent: SentTools) -> bool:
        """Record an error about tools that it names; return whether to send the request again."""
        wire = sent.wire
        if wire is None or not self._may_repair(error, wire):
            return False
        text = f"{error.param} {error.message}"
        return self._is_limit(text, wire) or self._refuse(_named(text, sent, wire), error, sent, wire)

    def of_unnamed(self, error: ModelError, sent: SentTools) -> bool:
        """Record that some tool has a schema that the API refuses; return whether to send the request again."""
        wire = sent.wire
        if wire is None or not self._may_repair(error, wire):
            return False
        if _SCHEMA_WORDS.search(error.message) is None:
            return False
        # An error without a name would come once for every tool.
        self._repairs = _MAX_REPAIRS
        return self._refuse_all(sent.specs, error, wire)

    def _may_repair(self, error: ModelError, wire: WireTools) -> bool:
        """Return whether the error is about a request with tools, and further repairs are allowed."""
        if not self._refused.repairs or self._repairs >= _MAX_REPAIRS:
            return False
        is_about_request = error.kind == "invalid_request" and error.malformed_call is None
        return is_about_request and bool(wire.definitions)

    def _is_limit(self, text: str, wire: WireTools) -> bool:
        number = _first_number(_MAX_TOOLS, text)
        if 0 < number < len(wire.definitions):
            self._repairs += 1
            self._refused.learn_max_tools(number)
            return True
        number = _first_number((_MAX_DESCRIPTION,), text)
        if number < _MIN_DESCRIPTION:
            return False
        if max(len(_description(one)) for one in wire.definitions) > number:
            self._repairs += 1
            self._refused.learn_max_description(number)
            return True
        return False

    def _refuse(self, specs: Sequence[ToolSpec], error: ModelError, sent: SentTools, wire: WireTools) -> bool:
        repaired = False
        for spec in specs:
            self._repairs += 1
            self._singles += 1
            repaired |= self._refuse_one(spec, error, wire)
        if repaired and self._singles == _MAX_SINGLE:
            self._refuse_all(sent.specs, error, wire)
        return repaired

    def _refuse_all(self, specs: Sequence[ToolSpec], error: ModelError, wire: WireTools) -> bool:
        refused = False
        for spec in specs:
            is_sent = spec.name in wire.names.wire_names
            if is_sent and not self._refused.is_simplified(spec):
                self._refuse_one(spec, error, wire)
                refused = True
        return refused

    def _refuse_one(self, spec: ToolSpec, error: ModelError, wire: WireTools) -> bool:
        strict = spec.name in wire.strict
        refused = self._refused.refuse(spec, error.message, strict=strict)
        if refused:
            _trace(spec.name, error)
        return refused


def _named(text: str, sent: SentTools, wire: WireTools) -> list[ToolSpec]:
    """Return the tools that an error names."""
    specs: dict[str, ToolSpec] = {}
    for spec in sent.specs:
        wire_name = wire.names.wire_names.get(spec.name)
        if wire_name is not None:
            specs[wire_name] = spec
    for wire_name in (*_by_index(text, sent.entries), *_by_name(text, specs)):
        if wire_name in specs:
            return [specs[wire_name]]
    paths = [_PATH_PARTS.findall(found) for found in _PATH.findall(text)]
    paths += [re.findall(r"'([^']*)'", found) for found in _CONTEXT.findall(text)]
    for path in filter(None, paths):
        found = [specs[name] for name, schema in _schemas(wire.definitions) if _has_path(schema, path)]
        if found:
            return found
    return []


def _first_number(patterns: Iterable[re.Pattern[str]], text: str) -> int:
    """Return the number that the first fitting pattern finds in a text, or 0."""
    for pattern in patterns:
        found = pattern.search(text)
        if found is not None:
            return int(found[1])
    return 0


def _by_index(text: str, entries: Sequence[Any]) -> Iterator[str]:
    names = list(map(_entry_name, entries))
    for pattern in _INDEX:
        for found in pattern.finditer(text):
            if int(found[1]) < len(names):
                yield names[int(found[1])]


def _by_name(text: str, names: JsonObject) -> Iterator[str]:
    """Yield the names of tools in a text; the quoted ones first, in their order."""
    if _SUBJECT.search(text) is None:
        return
    for pattern in (_QUOTED, _BARE):
        for found in pattern.finditer(text):
            if found[1] in names:
                yield found[1]


def _entry_name(entry: Any) -> str:
    if isinstance(entry, msgspec.Raw):
        entry = decode_json(bytes(entry))
    return _definition_name(entry)


def _definition_name(definition: Any) -> str:
    return _text_of(definition, "name")


def _description(definition: Any) -> str:
    return _text_of(definition, "description")


def _text_of(definition: object, member: str) -> str:
    """Return a text of a definition, or of the `function` inside it, where Chat Completions has it."""
    members = object_or_empty(definition)
    return text_or_empty(members.get(member)) or text_or_empty(object_or_empty(members.get("function")).get(member))


def _schemas(definitions: Iterable[Any]) -> Iterator[tuple[str, JsonObject]]:
    for definition in definitions:
        for path in _SCHEMA_MEMBERS:
            schema: Any = definition
            for part in path:
                schema = object_or_empty(schema).get(part)
            found = as_object(schema)
            if found is not None:
                yield _definition_name(definition), found


def _has_path(schema: JsonObject, path: Sequence[str]) -> bool:
    node: object = schema
    for part in path:
        members = object_or_empty(node)
        items = array_or_empty(node)
        if part in members:
            node = members[part]
        elif part.isdecimal() and int(part) < len(items):
            node = items[int(part)]
        else:
            return False
    return True


def _trace(name: str, error: ModelError) -> None:
    """Add an event to the present span, if the program traces."""
    if "opentelemetry" not in sys.modules:
        # A tracing program has loaded it.
        return
    from opentelemetry import trace

    attributes = {"gen_ai.tool.name": name, "toolweave.refusal.status": error.status or 0}
    trace.get_current_span().add_event("toolweave.tool_refused", attributes)
