"""Checks of options that are given in Python, where no file was parsed; those of files are checked by their types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, cast, get_type_hints

import msgspec

from toolweave._json_types import as_number


def as_tuples(value: msgspec.Struct, *names: str) -> None:
    """Keep these members as tuples; a single text counts as one member.

    Raises:
        ValueError: One is not a sequence.
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
    """Check numbers that have a lower bound; None is not a number and passes.

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
            raise ValueError(f"{_where(value, name)} has objects of {wanted.__name__}, not of {type(member).__name__}")


def typed(value: msgspec.Struct, *names: str) -> None:
    """Check members by the types that they are declared with.

    Raises:
        ValueError: One has another type. A text such as "no" would count as true, and a condition that no request has
            would not deny any.
    """
    types = _types_of(type(value))
    for name in names:
        try:
            msgspec.convert(getattr(value, name), types[name])
        except msgspec.ValidationError as exc:  # its text names types, and no value
            raise ValueError(f"{_where(value, name)}: {exc}") from None


def functions(value: msgspec.Struct, *names: str) -> None:
    """Check members that are called; None passes.

    Raises:
        ValueError: One cannot be called.
    """
    for name in names:
        given: Any = getattr(value, name)
        if given is not None and not callable(given):
            raise ValueError(f"{_where(value, name)} must be a function, not {type(given).__name__}")


@cache
def _types_of(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _where(value: msgspec.Struct, name: str) -> str:
    return f"{type(value).__name__}: {name}"
