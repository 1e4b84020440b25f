"""Large schemas with open deep parts, and descriptions in place of patterns that cannot be checked. Pure."""

from __future__ import annotations

from collections import deque
from typing import Any

from toolweave._json_types import Json, JsonObject, as_array, as_object, object_or_empty, text_or_empty, without_members
from toolweave._repairs import Repair
from toolweave.errors import shortened
from toolweave.schema import Validator
from toolweave.tools.arguments import encode

_MAX_DEPTH = 8
UNCHECKED_PATTERN = Repair(
    given="a part of a document's schema that cannot be checked, such as a pattern of another engine",
    read_as="the schema without it; a pattern is in the description",
    limit="the rest is checked here, and all of it by the API",
    switch="nothing: the API checks it",
)
LARGE_INPUT = Repair(
    given="an input schema of a document that is too large",
    read_as="a schema with open parts below a depth",
    limit=f"at least 1 level and at most {_MAX_DEPTH} levels are kept",
    switch="nothing: the API checks the open parts",
)
_PREFIX = "#/$defs/"
_ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "additionalItems")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "dependentSchemas")
_INNER = frozenset((*_ONE, *_LISTED, *_NAMED, "$ref"))
_MAX_TEXT = 200
_OPEN = "its parts are not described here; the API checks them"


def bounded(schema: JsonObject, max_bytes: int) -> tuple[Json, int | None]:
    """Return a schema of at most this size if possible, and the depth below which it is open, or None if nowhere.

    Objects and lists below that depth keep their type and description. A value that fits the given schema still fits.
    """
    whole = dict(schema)
    if len(encode(whole)) <= max_bytes:
        return whole, None
    for depth in range(_MAX_DEPTH, 0, -1):
        whole = _Cut(schema, depth).schema()
        if len(encode(whole)) <= max_bytes:
            return whole, depth
    return whole, 1


class _Cut:
    """Cuts a schema at a depth: definitions are kept as deep as the shortest way to them."""

    # The search is breadth first. Levels in `_waiting` grow, so a definition is met first on its shortest way and its
    # level never has to be corrected. A definition is cut once, so definitions that refer to each other end.

    def __init__(self, schema: JsonObject, depth: int) -> None:
        self._root = schema
        self._depth = depth
        self._definitions = object_or_empty(schema.get("$defs"))
        self._levels: dict[str, int] = {}
        self._waiting: deque[str] = deque()

    def schema(self) -> Json:
        made = self._cut(without_members(self._root, "$defs"), 0)
        kept: Json = {}
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
        made: Json = {}
        for key, part in members.items():
            listed = as_array(part)
            named = as_object(part)
            if key in _ONE:
                made[key] = self._cut(part, level + 1)
            elif key in _LISTED and listed is not None:
                made[key] = [self._cut(one, level + 1) for one in listed]
            elif key in _NAMED and named is not None:
                made[key] = {name: self._cut(one, level + 1) for name, one in named.items()}
            else:
                made[key] = part
        self._need(members.get("$ref"), level)
        return made

    def _need(self, reference: object, level: int) -> None:
        name = _definition_name(reference)
        if name in self._definitions and name not in self._levels:
            self._levels[name] = level
            self._waiting.append(name)

    def _open(self, members: JsonObject) -> Json:
        """Return the open form of a part; a scalar is returned as it is."""
        target = members
        seen = set[str]()
        name = _definition_name(target.get("$ref"))
        while name in self._definitions and name not in seen:
            seen.add(name)
            target = object_or_empty(self._definitions[name])
            name = _definition_name(target.get("$ref"))
        if not _INNER & target.keys():
            return {**target, **without_members(members, "$ref")}
        description = text_or_empty(members.get("description")) or text_or_empty(target.get("description"))
        made: Json = {}
        if target.get("type") is not None:
            made["type"] = target["type"]
        made["description"] = f"{shortened(description, _MAX_TEXT)} ({_OPEN})".strip()
        return made


def _definition_name(reference: object) -> str:
    """Return the name in `$defs` that a reference leads to; of another value, a name that no definition has."""
    return text_or_empty(reference).removeprefix(_PREFIX)


def checkable(schema: JsonObject) -> tuple[Validator, tuple[str, ...]]:
    """Return the validator of the readable part of a schema, and the changes as phrases.

    A pattern that the validator cannot check stays in the description.

    Raises:
        SchemaError: No part of it can be checked.
    """
    made, changes = Validator.repaired(schema)
    if not changes:
        return made, ()
    return Validator(_with_patterns(schema, made.schema)), changes


def _with_patterns(given: object, kept: Any) -> Any:
    """Return the kept form of a schema with the patterns that only the given form has in its descriptions."""
    items = as_array(kept)
    given_items = as_array(given)
    if items is not None and given_items is not None:
        # one was left out, so positions do not correspond
        if len(given_items) != len(items):
            return items
        return [_with_patterns(*pair) for pair in zip(given_items, items, strict=True)]
    before = as_object(given)
    after = as_object(kept)
    if before is None or after is None:
        return kept
    made = {name: _with_patterns(before.get(name), part) for name, part in after.items()}
    pattern = before.get("pattern")
    if isinstance(pattern, str) and "pattern" not in after:
        description = text_or_empty(after.get("description"))
        made["description"] = f"{description} (pattern: {shortened(pattern, _MAX_TEXT)})".strip()
    return made
