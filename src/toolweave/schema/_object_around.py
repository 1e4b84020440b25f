"""Schemas of values of any type, as the one member of an object, for those that know only objects. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from toolweave._json_types import only_members, without_members
from toolweave.schema._json_values import JsonValue, SchemaNode, SchemaView, named

_SHARED = ("$defs", "definitions")
_SHARED_REFERENCES = ("#/$defs/", "#/definitions/")
_AT_ROOT = ("$schema", *_SHARED)
_WRAPPER_KEYWORDS = {*_AT_ROOT, "type", "properties", "required", "additionalProperties"}
_VALUES = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords whose values are data, in which `$ref` is a member like any other."""


def is_object_schema(schema: SchemaView | bool) -> bool:
    """Return whether a schema has the type `object` at its root."""
    return isinstance(schema, Mapping) and schema.get("type") == "object"


def object_around(schema: SchemaView | bool, member: str) -> SchemaNode:
    """Return the schema of an object whose one member, which is required, has the given schema.

    Shared definitions stay at the root. References to other places of the schema follow it to its new place; those of a
    schema with an `$id` are relative to that and stay.
    """
    shared: SchemaNode = {}
    inner = schema if isinstance(schema, bool) else dict(schema)
    if isinstance(inner, dict) and "$id" not in inner:
        place = f"#/properties/{member}"
        shared = _moved_members(_at_root(inner), place)
        inner = _moved_members(without_members(inner, *_AT_ROOT), place)
    return {
        **shared,
        "type": "object",
        "properties": {member: inner},
        "required": [member],
        "additionalProperties": False,
    }


def schema_inside(schema: SchemaView, member: str) -> SchemaView | bool | None:
    """Return the schema of the one member of an object, as it was before `object_around`; None for any other schema."""
    properties = named(schema, "properties")
    if schema.get("type") != "object" or schema.get("required") != [member] or list(properties) != [member]:
        return None
    if not schema.keys() <= _WRAPPER_KEYWORDS:
        return None
    inner = properties[member]
    if not isinstance(inner, dict):
        return inner if isinstance(inner, bool) else None
    if "$id" in inner:
        return inner
    return _moved_members(inner | _at_root(schema), "#", start=f"#/properties/{member}")


def _at_root(schema: SchemaView) -> SchemaNode:
    """Return the parts of a schema that stay at its root."""
    return only_members(schema, _AT_ROOT)


def _moved(node: JsonValue, place: str, start: str) -> JsonValue:
    if isinstance(node, list):
        return [_moved(one, place, start) for one in node]
    if isinstance(node, dict):
        return _moved_members(node, place, start=start)
    return node


def _moved_members(node: SchemaNode, place: str, *, start: str = "#") -> SchemaNode:
    """Return a part of a schema whose references below a start, except to shared definitions, lead to a new place."""
    made: SchemaNode = {}
    for key, value in node.items():
        if key == "$ref" and isinstance(value, str):
            made[key] = _moved_reference(value, place, start)
        elif key in _VALUES:
            made[key] = value
        else:
            made[key] = _moved(value, place, start)
    return made


def _moved_reference(reference: str, place: str, start: str) -> str:
    is_inside = reference == start or reference.startswith(f"{start}/")
    # Shared definitions stay at the root, so that references to them are right at every place.
    if not is_inside or reference.startswith(_SHARED_REFERENCES):
        return reference
    return place + reference.removeprefix(start)
