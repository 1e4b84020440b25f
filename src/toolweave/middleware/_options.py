"""Options of middleware that are given in Python, where no file was parsed: their forms, and checks that name them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from toolweave._option_checks import OptionKind, check_choice, check_kinds, check_number, type_error


def as_tuples(value: msgspec.Struct, *names: str) -> None:
    """Keep these members as tuples; a single text counts as one member.

    Raises:
        TypeError: One is not a sequence.
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
            raise type_error(_named(value, name), given, "a list")
        msgspec.structs.force_setattr(value, name, made)


def one_of(value: msgspec.Struct, name: str, *choices: str) -> None:
    """Check a member that is one of a few words; a slip must not open anything.

    Raises:
        ValueError: It is another.
    """
    check_choice(_named(value, name), getattr(value, name), choices)


def at_least(value: msgspec.Struct, least: float, *names: str) -> None:
    """Check finite numbers that have a lower bound; None is not a number and passes.

    Raises:
        ConfigError: One is lower, or not finite.
        TypeError: One is not a number.
    """
    for name in names:
        given: Any = getattr(value, name)
        if given is not None:
            check_number(_named(value, name), given, least)


def of_kinds(value: msgspec.Struct, kinds: Mapping[str, OptionKind]) -> None:
    """Check the types of members.

    Raises:
        TypeError: One has another type. A text such as "no" would count as true, and a condition that no request has
            would not deny any.
    """
    check_kinds(value, kinds, owner=type(value).__name__)


def _named(value: msgspec.Struct, name: str) -> str:
    return f"{type(value).__name__}.{name}"
