"""JSON values: the types of an object, functions that return untrusted values if they have a type, and copies. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

_Value = TypeVar("_Value")

Json: TypeAlias = dict[str, Any]
"""A JSON object."""
JsonObject: TypeAlias = Mapping[str, Any]
"""A JSON object that is only read."""
new_object: Callable[[], Json] = dict
"""Makes an empty object, for members that have one by default: `Json()` does it in seven times the time."""


def as_object(value: object) -> JsonObject | None:
    """Return a JSON object."""
    # nearly every one is a dict or missing, and asking for that first is several times cheaper than asking an ABC
    if value is None or isinstance(value, (dict, Mapping)):
        return value  # pyright: ignore[reportUnknownVariableType]
    return None


def as_array(value: object) -> list[Any] | None:
    """Return a JSON array."""
    if isinstance(value, list):
        return cast("list[Any]", value)
    return None


def as_sequence(value: object) -> Sequence[Any] | None:
    """Return a JSON array, or a tuple that code gives in place of one."""
    if isinstance(value, (list, tuple)):
        return cast("Sequence[Any]", value)
    return None


def as_text(value: object) -> str | None:
    """Return a JSON string."""
    if isinstance(value, str):
        return value
    return None


def as_integer(value: object) -> int | None:
    """Return a JSON number without a fraction; a boolean is not a number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None


def as_number(value: object) -> int | float | None:
    """Return a JSON number; a boolean is not a number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    return None


def finite_number(value: object) -> int | float | None:
    """Return a JSON number that a float can hold; None for NaN, the infinities and longer integers."""
    number = as_number(value)
    if number is None:
        return None
    try:
        is_finite = math.isfinite(number)
    except OverflowError:
        # JSON has integers of any length, and who computes with one as a float fails.
        return None
    if is_finite:
        return number
    return None


def object_or_empty(value: object) -> JsonObject:
    """Return a JSON object, or an empty one for any other value."""
    # Not by `as_object`: each request asks this several times, and one call is half of what it costs.
    if value is not None and isinstance(value, (dict, Mapping)):
        return value  # pyright: ignore[reportUnknownVariableType]
    return {}


def array_or_empty(value: object) -> list[Any]:
    """Return a JSON array, or an empty one for any other value."""
    return as_array(value) or []


def object_entries(value: object) -> list[JsonObject]:
    """Return the objects of a JSON array, without its other values; empty for a value that is not an array."""
    found: list[JsonObject] = []
    for entry in array_or_empty(value):
        members = as_object(entry)
        if members is not None:
            found.append(members)
    return found


def text_or_empty(value: object) -> str:
    """Return a JSON string, or an empty one for any other value."""
    return as_text(value) or ""


def text_entries(value: object) -> list[str]:
    """Return the strings of a JSON array, without its other values; empty for a value that is not an array."""
    found: list[str] = []
    for entry in array_or_empty(value):
        text = as_text(entry)
        if text is not None:
            found.append(text)
    return found


def without_members(members: Mapping[str, _Value], *names: str) -> dict[str, _Value]:
    """Return a copy of an object without the members of these names."""
    made = dict(members)
    for name in names:
        made.pop(name, None)
    return made


def without_none(members: Mapping[str, _Value | None]) -> dict[str, _Value]:
    """Return a copy of an object without its null members."""
    return {name: value for name, value in members.items() if value is not None}


def without_empty(members: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return a copy of an object without its false members: null, empty texts and lists, 0."""
    return {name: value for name, value in members.items() if value}


def not_none(values: Iterable[_Value | None]) -> list[_Value]:
    """Return the values that are not None, in their order."""
    return [value for value in values if value is not None]


def only_members(members: Mapping[str, _Value], names: Iterable[str]) -> dict[str, _Value]:
    """Return a copy of an object with those of these members that it has, in the order of the names."""
    made: dict[str, _Value] = {}
    for name in names:
        if name not in members:
            continue
        made[name] = members[name]
    return made
