"""Checks of options that are stores, and of the options of stores: a wrong type would fail in its first use."""

from __future__ import annotations

import math

from toolweave.state.store import Store

__all__ = ["STORE_TYPE", "check_amount", "check_clock", "check_store"]

STORE_TYPE = "a store, such as SqliteStore(path) or open_store(url)"


def check_store(name: str, value: object) -> None:
    """Check an option that is a store.

    Args:
        name: The option, and the class that has it.
        value: The value.

    Raises:
        TypeError: It has another type. The error shows no value, which may be a URL with a password.
    """
    # A class has the members of the protocol as well as its objects.
    if not isinstance(value, Store) or isinstance(value, type):
        raise TypeError(f"{name} is {STORE_TYPE}, not {_shown_type(value)}")


def check_amount(name: str, value: object, noun: str, least: float = 0.0) -> None:
    """Check a number that is finite and not below a bound.

    Args:
        name: The option, and the class that has it.
        value: The value.
        noun: The type in words, such as `a number of seconds`.
        least: The bound.

    Raises:
        TypeError: It has another type.
        ValueError: It is lower, infinite, or not a number (NaN), which every comparison would let through.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is {noun}, not {_shown_type(value)}")
    if not least <= value < math.inf:
        raise ValueError(f"{name} is {noun}, finite and at least {least:g}, not {value!r}")


def check_clock(name: str, value: object) -> None:
    """Check a function that returns the time; None passes.

    Raises:
        TypeError: It is not a function.
    """
    if value is not None and not callable(value):
        raise TypeError(f"{name} is a function that returns the time in seconds, not {_shown_type(value)}")


def _shown_type(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return type(value).__name__
