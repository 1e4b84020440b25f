"""Schemas of values of any type, as the one member of an object: for protocols and APIs that know only objects. Pure."""

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
        inner, shared = _moved(inner, place), _moved(shared, place)
    return {
        **shared,
        "type": "object",
        "properties": {member: inner},
        "required": [member],
        "additionalProperties": False,
    }


def _moved(node: Any, place: str) -> Any:
    """Return a part of a schema whose references to the root, and not to shared definitions, lead to its new place."""
    if isinstance(node, list):
        return [_moved(one, place) for one in cast("list[Any]", node)]
    if not isinstance(node, Mapping):
        return node
    made: dict[str, Any] = {}
    for key, value in cast("Mapping[str, Any]", node).items():
        if key == "$ref" and isinstance(value, str):
            made[key] = _moved_reference(value, place)
        else:
            made[key] = value if key in _VALUES else _moved(value, place)
    return made


def _moved_reference(reference: str, place: str) -> str:
    is_pointer = reference == "#" or reference.startswith("#/")
    if not is_pointer or reference.startswith(tuple(f"#/{name}/" for name in _SHARED)):
        return reference
    return place + reference[1:]
