"""Bounds on schemas and instances that strangers send, checked before anything recursive sees them.

Counts values; knows nothing of what the keywords mean beyond which of them apply in place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from toolweave.errors import SchemaError

__all__ = [
    "MAX_COMBINATIONS",
    "MAX_INSTANCE_DEPTH",
    "MAX_SCHEMA_DEPTH",
    "MAX_SCHEMA_NODES",
    "check_schema",
    "local_target",
    "measure",
]

MAX_SCHEMA_DEPTH = 128
"""Levels of nesting in a schema, objects and arrays counted alike."""

MAX_SCHEMA_NODES = 50_000
"""Objects and arrays in a schema."""

MAX_COMBINATIONS = 100_000
"""Subschemas that apply to one and the same value, references followed: `allOf` chains grow exponentially."""

MAX_INSTANCE_DEPTH = 512
"""Levels of nesting in a validated value; a validator's own recursion must end before the stack does."""

_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("not", "if", "then", "else")


def check_schema(schema: Any) -> None:  # any JSON value, and whatever else a caller hands over
    """Refuse a schema that is too deep, too large, cyclic in memory, or explosive.

    Raises:
        SchemaError: Naming the bound that is passed.
    """
    level: list[Any] = [schema]
    schemas: list[dict[str, Any]] = []
    nodes = 0
    for _ in range(MAX_SCHEMA_DEPTH + 1):
        nodes += len(level)
        if nodes > MAX_SCHEMA_NODES:
            raise SchemaError(f"the schema has more than {MAX_SCHEMA_NODES} objects and arrays")
        schemas += [node for node in level if isinstance(node, dict)]
        level = _containers(level)
        if not level:
            break
    else:
        raise SchemaError(f"the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")
    if isinstance(schema, dict) and any("$ref" in node or "allOf" in node or "anyOf" in node for node in schemas):
        _check_combinations(cast("dict[str, Any]", schema), schemas)


def measure(instance: Any) -> int:  # any JSON value
    """Return the number of values inside a value, or -1 when it is nested too deeply."""
    if not isinstance(instance, (dict, list)):
        return 0
    size = 0
    level: list[Any] = [instance]
    for _ in range(MAX_INSTANCE_DEPTH):
        size += sum(map(len, level))
        level = _containers(level)
        if not level:
            return size
    return -1


def local_target(root: dict[str, Any], ref: object) -> Any:  # any JSON value
    """Return what a reference of the form `#/a/b` points at, or None for every other reference."""
    if ref == "#":
        return root
    if not isinstance(ref, str) or not ref.startswith("#/"):
        return None
    node: Any = root
    for part in ref[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = cast("dict[str, Any]", node).get(key)
        elif isinstance(node, list) and key.isdecimal() and int(key) < len(cast("list[Any]", node)):
            node = cast("list[Any]", node)[int(key)]
        else:
            return None
    return node


def _containers(level: Iterable[Any]) -> list[Any]:
    return [item for node in level for item in _values(node) if isinstance(item, (dict, list))]


def _values(node: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return node.values() if isinstance(node, dict) else node


def _check_combinations(root: dict[str, Any], schemas: list[dict[str, Any]]) -> None:
    counts: dict[int, int] = {}

    def count(schema: Any) -> int:
        if not isinstance(schema, dict):
            return 0
        schema = cast("dict[str, Any]", schema)
        known = counts.get(id(schema))
        if known is not None:
            return known
        counts[id(schema)] = 0  # a cycle through references ends here
        total = 1 + count(local_target(root, schema.get("$ref")))
        for keyword in _IN_PLACE_LISTS:
            branches = schema.get(keyword)
            if isinstance(branches, list):
                total += sum(count(branch) for branch in cast("list[Any]", branches))
        total += sum(count(schema.get(keyword)) for keyword in _IN_PLACE)
        if total > MAX_COMBINATIONS:
            raise SchemaError(
                f"more than {MAX_COMBINATIONS} subschemas apply to one value through allOf, anyOf or $ref"
            )
        counts[id(schema)] = total
        return total

    try:
        for schema in schemas:
            count(schema)
    except RecursionError:
        raise SchemaError("the schema's references form a chain that is too long") from None
