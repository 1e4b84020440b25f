"""Checks of options that are given in Python, where no file was parsed; those of files are checked by their types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from toolweave._json_types import as_number


def as_tuples(value: msgspec.Struct, *names: str) -> None:
    """Keep these members as tuples; a single text counts as one member.

    Raises:
        ValueError: One is no sequence.
    """
    for name in names:
        given: Any = getattr(value, name)
        if isinstance(given, tuple):
            continue
        if isinstance(given, str):
            made: tuple[Any, ...] = (given,)
        elif isinstance(given, list | set | frozenset):
            made = tuple(cast("Iterable[Any]", given))
        else:
            raise ValueError(f"{_where(value, name)} must be a sequence, not {type(given).__name__}")
        msgspec.structs.force_setattr(value, name, made)


def one_of(value: msgspec.Struct, name: str, *choices: str) -> None:
    """Check a member that is one of a few words.

    Raises:
        ValueError: It is another.
    """
    if getattr(value, name) not in choices:
        # A slip must not open anything.
        raise ValueError(f"{_where(value, name)} is {' or '.join(map(repr, choices))}, not {getattr(value, name)!r}")


def least(value: msgspec.Struct, least: float, *names: str) -> None:
    """Check numbers that have a lower bound; None is no number and passes.

    Raises:
        ValueError: One is lower.
    """
    for name in names:
        given: Any = getattr(value, name)
        if given is None:
            continue
        number = as_number(given)
        # not `<`, which NaN passes
        if number is None or not number >= least:
            raise ValueError(f"{_where(value, name)} must be a number, {least:g} or more, not {given!r}")


def all_of(value: msgspec.Struct, name: str, wanted: type[object]) -> None:
    """Check the members of a sequence, which are objects of one class.

    Raises:
        ValueError: One is another.
    """
    for member in getattr(value, name):
        if not isinstance(member, wanted):
            raise ValueError(f"{_where(value, name)} has objects of {wanted.__name__}, not {member!r}")


def _where(value: msgspec.Struct, name: str) -> str:
    return f"{type(value).__name__}: {name}"
