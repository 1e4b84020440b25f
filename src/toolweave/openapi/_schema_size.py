"""Large schemas with open deep parts, and descriptions in place of patterns that cannot be checked. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, cast

from toolweave._repairs import Repair
from toolweave.errors import shortened
from toolweave.protocol.json_types import as_object, as_text
from toolweave.schema import Validator
from toolweave.tools._arguments import encode

_DEEPEST = 8
UNCHECKED_PATTERN = Repair(
    given="a part of a document's schema that cannot be checked, such as a pattern of another engine",
    read_as="the schema without it; a pattern is in the description",
    limit="the rest is checked here, and all of it by the API",
    switch="nothing: the API checks it",
)
LARGE_INPUT = Repair(
    given="an input schema of a document that is too large",
    read_as="a schema with open parts below a depth",
    limit=f"at least 1 level and at most {_DEEPEST} levels are kept",
    switch="nothing: the API checks the open parts",
)
_PREFIX = "#/$defs/"
_ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "additionalItems")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "dependentSchemas")
_INNER = frozenset((*_ONE, *_LISTED, *_NAMED, "$ref"))
_MAX_TEXT = 200
_OPEN = "its parts are not described here; the API checks them"


def bounded(schema: Mapping[str, Any], max_bytes: int) -> tuple[dict[str, Any], int | None]:
    """Return a schema of at most this size where possible, and the depth from which on it is open; None for all of it.

    Objects and lists below that depth keep their type and description. A value that fits the schema as it was still
    fits.
    """
    whole = dict(schema)
    if len(encode(whole)) <= max_bytes:
        return whole, None
    for depth in range(_DEEPEST, 0, -1):
        whole = _Cut(schema, depth).schema()
        if len(encode(whole)) <= max_bytes:
            return whole, depth
    return whole, 1


class _Cut:
    """Cuts a schema at a depth: definitions are kept as deep as the shortest way to them."""

    def __init__(self, schema: Mapping[str, Any], depth: int) -> None:
        self._root = schema
        self._depth = depth
        self._definitions = as_object(schema.get("$defs")) or {}
        self._levels: dict[str, int] = {}
        self._waiting: deque[str] = deque()

    def schema(self) -> dict[str, Any]:
        made = cast("dict[str, Any]", self._cut({key: part for key, part in self._root.items() if key != "$defs"}, 0))
        kept: dict[str, Any] = {}
        # First come, first cut: the levels grow, so that a definition is met on its shortest way first.
        while self._waiting:
            name = self._waiting.popleft()
            kept[name] = self._cut(self._definitions[name], self._levels[name])
        if kept:
            return {**made, "$defs": kept}
        return made

    def _cut(self, node: Any, level: int) -> Any:
        members = as_object(node)
        if members is None:
            return node
        if level >= self._depth and _INNER & members.keys():
            return self._open(members)
        made: dict[str, Any] = {}
        for key, part in members.items():
            if key in _ONE:
                made[key] = self._cut(part, level + 1)
            elif key in _LISTED and isinstance(part, list):
                made[key] = [self._cut(one, level + 1) for one in cast("list[Any]", part)]
            elif key in _NAMED and isinstance(part, dict):
                named = cast("dict[str, Any]", part)
                made[key] = {name: self._cut(one, level + 1) for name, one in named.items()}
            else:
                made[key] = part
        self._need(members.get("$ref"), level)
        return made

    def _need(self, reference: Any, level: int) -> None:
        if isinstance(reference, str):
            name = reference.removeprefix(_PREFIX)
        else:
            name = ""
        if name in self._definitions and name not in self._levels:
            self._levels[name] = level
            self._waiting.append(name)

    def _open(self, members: Mapping[str, Any]) -> Any:
        """Return the open form of a part; that of a scalar is the part itself."""
        target = members
        seen = set[str]()
        while (name := (as_text(target.get("$ref")) or "").removeprefix(_PREFIX)) in self._definitions:
            if name in seen:
                break
            seen.add(name)
            target = as_object(self._definitions[name]) or {}
        if not _INNER & target.keys():
            return {**target, **{key: part for key, part in members.items() if key != "$ref"}}
        about = as_text(members.get("description")) or as_text(target.get("description")) or ""
        kind = target.get("type")
        made: dict[str, Any] = {} if kind is None else {"type": kind}
        return {**made, "description": f"{shortened(about, _MAX_TEXT)} ({_OPEN})".strip()}


def checkable(schema: Mapping[str, Any]) -> tuple[Validator, tuple[str, ...]]:
    """Return the validator of the readable part of a schema, and the changes as phrases.

    A pattern that is left out stays in the description.

    Raises:
        SchemaError: No part of it can be checked.
    """
    made, changes = Validator.repaired(schema)
    if not changes:
        return made, ()
    return Validator(cast("dict[str, Any]", _with_patterns(schema, made.schema))), changes


def _with_patterns(given: Any, kept: Any) -> Any:
    """Return a schema in which patterns that it has lost are in the descriptions."""
    if isinstance(given, list) and isinstance(kept, list):
        items = cast("list[Any]", kept)
        others = cast("list[Any]", given)
        if len(others) != len(items):
            return items
        return [_with_patterns(*pair) for pair in zip(others, items, strict=True)]
    before = as_object(given)
    after = as_object(kept)
    if before is None or after is None:
        return kept
    made = {name: _with_patterns(before.get(name), part) for name, part in after.items()}
    pattern = before.get("pattern")
    if isinstance(pattern, str) and "pattern" not in after:
        told = f"(pattern: {shortened(pattern, _MAX_TEXT)})"
        made["description"] = f"{as_text(after.get('description')) or ''} {told}".strip()
    return made
