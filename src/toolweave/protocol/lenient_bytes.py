"""Bytes that are written as lists of numbers, as JavaScript writes a `Buffer`. Pure."""

from __future__ import annotations

import base64

from toolweave._json_types import as_array, as_object

__all__ = ["base64_in"]


def base64_in(value: object) -> str | None:
    """Return the bytes in a list of numbers, or in the JSON of a `Buffer`, as base64; None for any other value."""
    buffer = as_object(value)
    if buffer is not None:
        if buffer.get("type") != "Buffer":
            return None
        value = buffer.get("data")
    numbers = as_array(value)
    if not numbers:
        return None
    if any(type(number) is not int for number in numbers):
        return None
    try:
        return base64.b64encode(bytes(numbers)).decode("ascii")
    except ValueError:  # a number that is not a byte
        return None
