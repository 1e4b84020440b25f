"""Numbers that are written as texts: `"5"`, `"0.5"`. Pure."""

from __future__ import annotations

import re

from toolweave._json_types import finite_number

__all__ = ["number_in", "whole_number_in"]

_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")


def number_in(value: object) -> int | float | None:
    """Return the finite number that a value is, or that a text writes; None for any other value."""
    if isinstance(value, str):
        text = value.strip()
        if _NUMBER.fullmatch(text) is None:
            return None
        if "." in text:
            return float(text)
        return int(text)
    return finite_number(value)


def whole_number_in(value: object) -> int | None:
    """Return the whole number that a value is, or that a text writes: `"5"`, `5.0`; None for any other value."""
    number = number_in(value)
    if not isinstance(number, float):
        return number
    if number.is_integer():
        return int(number)
    return None
