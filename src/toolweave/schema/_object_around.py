"""Schemas of values of any type, as the one member of an object, for those that know only objects. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

_SHARED = ("$defs", "definitions")
_AT_ROOT = ("$schema", *_SHARED)
_VALUES = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords whose values are data, in which `$ref` is a member like any other."""


def is_object_schema(schema: Mapping[str, Any] | bool) -> bool:
    """Whether a schema says at its root that it describes objects."""
    return isinstance(schema, Mapping) and schema.get("type") == "object"


def object_around(schema: Mapping[str, Any] | bool, member: str) -> dict[str, Any]:
    """Return the schema of an object whose one member, which is required, has the given schema.

    Shared definitions stay at the root. References to other places of the schema follow it to its new place; those of a
    schema with an `$id` are relative to that and stay.
    """
    shared: dict[str, Any] = {}
    inner: Any = schema
    if isinstance(schema, Mapping) and "$id" not in schema:
        inner = {key: value for key, value in schema.items() if key not in _AT_ROOT}
        shared = {key: schema[key] for key in _AT_ROOT if key in schema}
        place = f"#/properties/{member}"
        inner = _moved(inner, place)
        shared = _moved(shared, place)
    return {
        **shared,
        "type": "object",
        "properties": {member: inner},
        "required": [member],
        "additionalProperties": False,
    }


def schema_inside(schema: Mapping[str, Any], member: str) -> Mapping[str, Any] | bool | None:
    """Return the schema of the one member of an object, as it was before `object_around`; None for any other schema."""
    properties: Any = schema.get("properties")
    is_around = (
        schema.get("type") == "object"
        and isinstance(properties, Mapping)
        and list(cast("Mapping[str, Any]", properties)) == [member]
        and schema.get("required") == [member]
    )
    if not is_around or schema.keys() - {*_AT_ROOT, "type", "properties", "required", "additionalProperties"}:
        return None
    inner = cast("Mapping[str, Any] | bool", properties[member])
    if not isinstance(inner, Mapping) or "$id" in inner:
        return inner
    shared = {key: schema[key] for key in _AT_ROOT if key in schema}
    return _moved({**inner, **shared}, "#", start=f"#/properties/{member}")


def _moved(node: Any, place: str, *, start: str = "#") -> Any:
    """Return a part of a schema whose references below a start, but for shared definitions, lead to a new place."""
    if isinstance(node, list):
        return [_moved(one, place, start=start) for one in cast("list[Any]", node)]
    if not isinstance(node, Mapping):
        return node
    made: dict[str, Any] = {}
    for key, value in cast("Mapping[str, Any]", node).items():
        if key == "$ref" and isinstance(value, str):
            made[key] = _moved_reference(value, place, start)
        else:
            made[key] = value if key in _VALUES else _moved(value, place, start=start)
    return made


def _moved_reference(reference: str, place: str, start: str) -> str:
    is_inside = reference == start or reference.startswith(f"{start}/")
    if not is_inside or reference.startswith(tuple(f"#/{name}/" for name in _SHARED)):
        return reference
    return place + reference.removeprefix(start)
