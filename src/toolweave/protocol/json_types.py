"""JSON values: the type of an object, and functions that return untrusted values if they have a type. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

__all__ = ["Json", "as_array", "as_object", "as_text"]

Json: TypeAlias = dict[str, Any]
"""A JSON object."""


def as_object(value: Any) -> Mapping[str, Any] | None:
    """Return a JSON object."""
    # nearly every one is a dict or missing, and asking for that first is several times cheaper than asking an ABC
    if value is None or isinstance(value, (dict, Mapping)):
        return value  # pyright: ignore[reportUnknownVariableType]
    return None


def as_array(value: Any) -> list[Any] | None:
    """Return a JSON array."""
    if isinstance(value, list):
        return cast("list[Any]", value)
    return None


def as_text(value: Any) -> str | None:
    """Return a JSON string."""
    if isinstance(value, str):
        return value
    return None
