"""Checks of options that are given in Python: a misspelt one would decide nothing, and often a protection."""

from __future__ import annotations

from collections.abc import Sequence


def check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Check an option with a few values.

    Raises:
        ValueError: It is another.
    """
    if value not in choices:
        raise choice_error(name, value, choices)


def choice_error(name: str, value: object, choices: Sequence[object]) -> ValueError:
    """Return the error for a value that is not among the few."""
    *others, last = map(repr, choices)
    return ValueError(f"{name} is {', '.join(others)} or {last}, not {value!r}")


def check_type(name: str, value: object, wanted: type[object] | tuple[type[object], ...], shown: str) -> None:
    """Check the type of an option; None passes.

    Raises:
        TypeError: It is of another type; the message says what it is: `shown`.
    """
    if value is None:
        return
    fits = isinstance(value, wanted)
    if wanted is int:
        fits = type(value) is int  # True is an int in Python, and a slip where a number is wanted
    if not fits:
        raise type_error(name, value, shown)


def type_error(name: str, value: object, shown: str) -> TypeError:
    """Return the error for an option of another type than the `shown` one."""
    # The type alone: a value in the wrong place may be a secret, such as a URL with a password.
    return TypeError(f"{name} is {shown}, not {type(value).__name__}")
