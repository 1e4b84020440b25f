"""Schemas in the form that values are checked with: `nullable` is a type, and malformed keywords are dropped.

A lowered schema and the checks start from the same reading of each level (`normalize.py`), so that a model reads the
schema that its arguments are checked with. A repaired schema accepts every value that the original one was meant to
accept: a keyword that cannot be read is dropped, and the rest of the schema stays. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from toolweave._json_types import without_members
from toolweave._repairs import Repair
from toolweave.schema._json_values import JsonValue, SchemaNode, SchemaView, text
from toolweave.schema.limits import Find, TooManySteps, containers, finder
from toolweave.schema.normalize import (
    BAD_KEYWORD,
    DEFINITIONS,
    KEYWORDS,
    MANY_SCHEMAS,
    NAMED_SCHEMAS,
    NULLABLE,
    ODD_TYPE,
    OLD_REQUIRED,
    ONE_SCHEMA,
    accept_null,
    modern,
)

_DATA = frozenset(("const", "default", "enum", "example", "examples"))
_IDENTITY = ("$id", "$anchor", "$dynamicAnchor")
_MEMBERS_ARE_SCHEMAS = frozenset((*NAMED_SCHEMAS, *DEFINITIONS, "dependencies"))
DANGLING = Repair(
    given="a reference that leads nowhere",
    read_as="the schema without it",
    limit="the rest is checked; nothing is fetched",
    switch='`"validate_input": false` checks nothing',
    problem="$ref {!r} leads nowhere and is left out",
)
SCHEMA_REPAIRS = (BAD_KEYWORD, ODD_TYPE, OLD_REQUIRED, NULLABLE, DANGLING)
"""Every repair of a schema that is checked."""
_OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07")

_Level: TypeAlias = Callable[[SchemaNode], SchemaNode]
"""Returns one level of a schema rewritten; the subschemas are rewritten afterwards."""


def has_nullable(schema: JsonValue) -> bool:
    """Return whether a schema uses `nullable` of OpenAPI 3.0 anywhere."""
    level = containers([[schema]])
    while level:
        for node in level:
            if isinstance(node, dict) and node.get("nullable") is True:
                return True
        level = containers(level)
    return False


def with_null_types(schema: SchemaView) -> SchemaNode:
    """Return a schema in which each `nullable` is null among the types; the original is not changed."""

    def level(node: SchemaNode) -> SchemaNode:
        accept_null(node)
        return node

    return _rewritten(schema, level)


def repaired(schema: SchemaView) -> tuple[SchemaNode, tuple[str, ...]]:
    """Return a schema of 2020-12 without malformed keywords and dangling references, and each change as a phrase.

    The original is not changed. Patterns are left as they are: only their engine can judge them.
    """
    changes: dict[str, None] = {}
    find = finder(dict(schema))
    dialect = str(schema.get("$schema", ""))
    is_old = any(draft in dialect for draft in _OLD_DRAFTS)

    def note(change: str) -> None:
        changes[change] = None

    def level(node: SchemaNode) -> SchemaNode:
        if is_old and isinstance(node.get("$ref"), str):
            # Until draft 7 everything beside a reference was ignored.
            node = without_members(node, *KEYWORDS)
        node = _identity(node) | modern(node, note)
        reference = text(node, "$ref")
        if reference is not None and not _leads_somewhere(find, reference):
            del node["$ref"]
            note(DANGLING.problem.format(reference[:80]))
        return node

    return _rewritten(schema, level), tuple(changes)


def _identity(node: SchemaNode) -> SchemaNode:
    """Return the keywords that give a subschema a name, for references to it; an anchor was an `$id` until draft 7."""
    identifier = text(node, "$id")
    if identifier is not None and identifier.startswith("#"):
        return {"$anchor": identifier[1:]}
    return {key: node[key] for key in _IDENTITY if isinstance(node.get(key), str)}


def without(schema: SchemaNode, path: list[str | int]) -> SchemaNode | None:
    """Return a copy of a schema without the member at a path, or None if there is no such member.

    Only the objects and arrays on the path are copied. The rest is shared with the original, which stays as it is.
    """
    if not path:
        return None
    part = path[0]
    inner = schema.get(part) if isinstance(part, str) else None
    if len(path) == 1 and part in schema:
        return without_members(schema, part)
    rest = _without(inner, path[1:]) if len(path) > 1 else None
    if rest is None:
        return None
    return schema | {str(part): rest}


def _without(value: JsonValue, path: list[str | int]) -> JsonValue:
    """Do the same as `without` for any value; an item of an array is never left out, but members within it are."""
    if isinstance(value, dict):
        return without(value, path)
    index = path[0]
    if len(path) == 1 or not isinstance(value, list):
        return None
    if not isinstance(index, int) or index >= len(value):
        return None
    rest = _without(value[index], path[1:])
    if rest is None:
        return None
    return [*value[:index], rest, *value[index + 1 :]]


def _leads_somewhere(find: Find, reference: str) -> bool:
    try:
        return isinstance(find(reference), (dict, bool))
    except TooManySteps:
        return False


def _rewritten(schema: SchemaView, level: _Level) -> SchemaNode:
    node = level(dict(schema))
    return {key: _rewritten_value(key, value, level) for key, value in node.items()}


def _rewritten_value(key: str, value: JsonValue, level: _Level) -> JsonValue:
    """Return the value of one keyword with the schemas in it rewritten.

    The value of an unknown keyword is read as a schema, too: references may lead into it (`#/components/schemas/X`).
    """
    if key in _DATA or not isinstance(value, (dict, list)):
        return value
    if isinstance(value, list):
        # Until draft 2019-09 `items` could be a list of schemas.
        if key in MANY_SCHEMAS or key == "items":
            return [_subschema(one, level) for one in value]
        return value
    if key in _MEMBERS_ARE_SCHEMAS:
        return {name: _subschema(one, level) for name, one in value.items()}
    if key in KEYWORDS and key not in ONE_SCHEMA:
        return value
    return _rewritten(value, level)


def _subschema(value: JsonValue, level: _Level) -> JsonValue:
    if isinstance(value, dict):
        return _rewritten(value, level)
    return value
