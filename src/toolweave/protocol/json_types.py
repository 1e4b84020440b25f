"""JSON values: the types and functions of `toolweave._json_types`, for the rooms that know the protocol."""

from __future__ import annotations

__all__ = [
    "Json",
    "JsonObject",
    "array_or_empty",
    "as_array",
    "as_integer",
    "as_number",
    "as_object",
    "as_sequence",
    "as_text",
    "object_entries",
    "object_or_empty",
    "text_or_empty",
]

from toolweave._json_types import (
    Json,
    JsonObject,
    array_or_empty,
    as_array,
    as_integer,
    as_number,
    as_object,
    as_sequence,
    as_text,
    object_entries,
    object_or_empty,
    text_or_empty,
)
