"""The type of JSON values, and readers of the keywords of a schema that return an empty value of a kind. Pure.

A keyword of a stranger's schema may hold any JSON. Code that has not checked the keyword reads it with these functions:
a value of another kind is read as an empty one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

JsonValue: TypeAlias = "str | int | float | bool | list[JsonValue] | dict[str, JsonValue] | None"
"""A JSON value of any kind. `isinstance` with `dict` or `list` narrows it to an object or an array of such values."""
SchemaNode: TypeAlias = "dict[str, JsonValue]"
"""A schema, or a part of one, as JSON that may be modified."""
SchemaView: TypeAlias = "Mapping[str, JsonValue]"
"""A schema, or a part of one, that is only read."""


def named(node: SchemaView, keyword: str) -> SchemaNode:
    """Return the object that a keyword holds, or an empty one."""
    found = node.get(keyword)
    if isinstance(found, dict):
        return found
    return {}


def listed(node: SchemaView, keyword: str) -> list[JsonValue]:
    """Return the array that a keyword holds, or an empty one."""
    found = node.get(keyword)
    if isinstance(found, list):
        return found
    return []


def texts(node: SchemaView, keyword: str) -> list[str]:
    """Return the strings of the array that a keyword holds, in order."""
    return [value for value in listed(node, keyword) if isinstance(value, str)]


def text(node: SchemaView, keyword: str) -> str | None:
    """Return the string that a keyword holds, or None."""
    found = node.get(keyword)
    if isinstance(found, str):
        return found
    return None


def members(value: JsonValue | SchemaView) -> SchemaView:
    """Return an object as it is, and an empty one for any other value."""
    if isinstance(value, Mapping):
        return value
    return {}
