"""Checks of options that are given in Python: a misspelt one would decide nothing, and often a protection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Check an option with a few values.

    Raises:
        ValueError: It is none of them.
    """
    # By identity or text, since 1 equals True and is none of them.
    for choice in choices:
        if value is choice or (isinstance(choice, str) and value == choice):
            return
    *others, last = map(repr, choices)
    raise ValueError(f"{name} is {', '.join(others)} or {last}, not {value!r}")


def check_type(name: str, value: Any, wanted: type[Any] | tuple[type[Any], ...], shown: str) -> None:
    """Check the type of an option; None passes.

    Raises:
        TypeError: It is of another type; the message says what it is: `shown`.
    """
    if value is not None and (not isinstance(value, wanted) or (isinstance(value, bool) and wanted is int)):
        raise TypeError(f"{name} is {shown}, not {value!r}")
