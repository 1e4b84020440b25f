"""Schemas in the form that values are checked with: `nullable` is a type, and malformed keywords are dropped.

A lowered schema and the checks start from the same reading of each level (`_normalize.py`), so that what a model is
told is what its arguments are checked with. A repaired schema accepts every value that the original one was meant to
accept: a keyword that cannot be read is dropped, and the rest of the schema stays. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from toolweave._repairs import Repair
from toolweave.schema._limits import TooManySteps, containers, finder
from toolweave.schema._normalize import (
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

_Level: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Returns one level of a schema rewritten; the subschemas are rewritten afterwards."""


def has_nullable(schema: Any) -> bool:
    """Return whether a schema uses `nullable` of OpenAPI 3.0 anywhere."""
    level: list[Any] = [schema]
    while level:
        if any(isinstance(node, dict) and cast("dict[str, Any]", node).get("nullable") is True for node in level):
            return True
        level = containers(level)
    return False


def with_null_types(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema in which each `nullable` is null among the types; the original is not changed."""

    def level(node: dict[str, Any]) -> dict[str, Any]:
        accept_null(node)
        return node

    return _rewritten(schema, level)


def repaired(schema: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a schema of 2020-12 without malformed keywords and dangling references, and each change as a phrase.

    The original is not changed. Patterns are left as they are: only their engine can judge them.
    """
    changes: dict[str, None] = {}
    find = finder(dict(schema))
    is_old = any(draft in str(schema.get("$schema", "")) for draft in _OLD_DRAFTS)

    def note(change: str) -> None:
        changes[change] = None

    def level(node: dict[str, Any]) -> dict[str, Any]:
        if is_old and isinstance(node.get("$ref"), str):
            # until draft 7 everything beside a reference was ignored
            node = {key: value for key, value in node.items() if key not in KEYWORDS}
        kept = {key: node[key] for key in _IDENTITY if isinstance(node.get(key), str)}
        if kept.get("$id", "").startswith("#"):  # an anchor, until draft 7
            kept = {"$anchor": kept["$id"][1:]}
        node = kept | modern(node, note)
        reference = node.get("$ref")
        if reference is not None and not _leads_somewhere(find, reference):
            del node["$ref"]
            note(DANGLING.problem.format(reference[:80]))
        return node

    return _rewritten(schema, level), tuple(changes)


def without(schema: dict[str, Any], path: list[str | int]) -> dict[str, Any] | None:
    """Return a copy of a schema without the member at a path, or None if there is no such member."""
    if not path:
        return None
    copied = dict(schema)
    node: Any = copied
    for part in path[:-1]:
        try:
            inner = node[part]
        except (LookupError, TypeError):
            return None
        if not isinstance(inner, (dict, list)):
            return None
        node[part] = node = cast("Any", inner.copy())
    if not isinstance(node, dict) or path[-1] not in node:
        return None
    del node[path[-1]]
    return copied


def _leads_somewhere(find: Callable[[Any], Any], reference: str) -> bool:
    try:
        return isinstance(find(reference), (dict, bool))
    except TooManySteps:
        return False


def _rewritten(schema: Mapping[str, Any], level: _Level) -> dict[str, Any]:
    node = level(dict(schema))
    return {key: _rewritten_value(key, value, level) for key, value in node.items()}


def _rewritten_value(key: str, value: Any, level: _Level) -> Any:
    """Return the value of one keyword with the schemas in it rewritten.

    The value of an unknown keyword is read as a schema, too: references may lead into it (`#/components/schemas/X`).
    """
    if key in _DATA or not isinstance(value, (dict, list)):
        return value
    if isinstance(value, list):
        items = cast("list[Any]", value)
        if _holds_schemas(key):
            return [_subschema(one, level) for one in items]
        return items
    members = cast("dict[str, Any]", value)
    if key in NAMED_SCHEMAS or key in DEFINITIONS or key == "dependencies":
        return {name: _subschema(one, level) for name, one in members.items()}
    if key in ONE_SCHEMA:
        return _rewritten(members, level)
    if key in KEYWORDS:
        return members
    return _rewritten(members, level)


def _holds_schemas(key: str) -> bool:
    return key in MANY_SCHEMAS or key == "items"


def _subschema(value: Any, level: _Level) -> Any:
    if isinstance(value, dict):
        return _rewritten(cast("dict[str, Any]", value), level)
    return value
