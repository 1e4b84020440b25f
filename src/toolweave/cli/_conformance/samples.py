"""Arguments for probing a tool: some that fit its schema, and some that cannot. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolweave.cli._conformance.findings import members
from toolweave.errors import SchemaError
from toolweave.schema import Validator

__all__ = ["fitting", "unfit"]

_DEPTH = 4
_SCALARS: Mapping[str, Any] = {
    "string": "example",
    "integer": 1,
    "number": 1,
    "boolean": False,
    "null": None,
    "array": [],
}
_WRONG: Mapping[str, Any] = {"string": 17, "array": 17, "object": 17, "integer": "x", "number": "x", "boolean": "x"}


def fitting(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return arguments with every required property, from defaults, examples or generated; None if impossible.

    Generated values are valid by the schema.
    """
    made = _value(schema, _DEPTH)
    try:
        fits = isinstance(made, dict) and Validator(schema).is_valid(made)
    except SchemaError:
        return None
    return cast("dict[str, Any]", made) if fits else None


def unfit(schema: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]] | None:
    """Return arguments that the schema rejects and their invalid properties; None when it allows everything."""
    names = _required(schema)
    candidates: list[tuple[dict[str, Any], tuple[str, ...]]] = [({}, names)] if names else []
    for name, part in members(schema.get("properties")).items():
        kind = members(part).get("type")
        if isinstance(kind, str) and kind in _WRONG:
            rest = members(fitting(schema) or {})
            candidates.append(({**rest, name: _WRONG[kind]}, (name,)))
            break
    try:
        validator = Validator(schema)
    except SchemaError:
        return None
    return next((found for found in candidates if not validator.is_valid(found[0])), None)


def _value(schema: Any, depth: int) -> Any:
    part = members(schema)
    for key in ("const", "default"):
        if key in part:
            return part[key]
    for key in ("examples", "enum"):
        if isinstance(part.get(key), list) and part[key]:
            return part[key][0]
    kind = part.get("type")
    if isinstance(kind, list):
        kind = next(iter(cast("list[Any]", kind)), None)
    if kind == "object" or "properties" in part:
        properties = members(part.get("properties"))
        return {name: _value(properties.get(name), depth - 1) for name in _required(part)} if depth else {}
    low = part.get("minimum")
    return low if kind in ("integer", "number") and low is not None else _SCALARS.get(str(kind), "example")


def _required(schema: Mapping[str, Any]) -> tuple[str, ...]:
    names = schema.get("required")
    return tuple(name for name in cast("list[Any]", names) if isinstance(name, str)) if isinstance(names, list) else ()
