"""Checks of options that are given in Python: a misspelt one would decide nothing, and often a protection."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, cast

from toolweave._json_types import as_number
from toolweave._text import alternatives
from toolweave.errors import ConfigError


class OptionKind(NamedTuple):
    """The type that an option has.

    Attributes:
        fits: Returns whether a value is of the type.
        shown: The type in words, for the error.
    """

    fits: Callable[[object], bool]
    shown: str

    @property
    def or_none(self) -> OptionKind:
        """The same, or None."""

        def fits(value: object) -> bool:
            return value is None or self.fits(value)

        return OptionKind(fits, f"{self.shown}, or None")


def instance_of(kind: type[object] | tuple[type[object], ...], shown: str) -> OptionKind:
    """Return the kind of an option that is an object of a class, or of one of several; not the class itself.

    A class has the members of a protocol as well as its objects, and would fail in its first use.
    """

    def fits(value: object) -> bool:
        return isinstance(value, kind) and not isinstance(value, type)

    return OptionKind(fits, shown)


def list_of(kind: type[object] | tuple[type[object], ...], shown: str) -> OptionKind:
    """Return the kind of an option that is a list, a tuple or a set of objects of a class; a text is not a list."""

    def fits(value: object) -> bool:
        members = _members(value)
        if members is None:
            return False
        return all(isinstance(one, kind) for one in members)

    return OptionKind(fits, shown)


def _members(value: object) -> Collection[object] | None:
    """Return the members of a list, a tuple or a set; None for all others, and for a text."""
    if isinstance(value, (str, bytes, Mapping)):
        return None
    if not isinstance(value, Collection):
        return None
    return cast("Collection[object]", value)


def _is_count(value: object) -> bool:
    return type(value) is int


def _is_number(value: object) -> bool:
    return as_number(value) is not None


FLAG = instance_of(bool, "True or False")
TEXT = instance_of(str, "a string")
# `True` is an int in Python, and a slip where a number is wanted.
COUNT = OptionKind(_is_count, "a whole number")
NUMBER = OptionKind(_is_number, "a number")
TEXTS = list_of(str, "a list of strings")
SECRETS = list_of((str, bytes), "a list of secrets")
MAPPING = instance_of(Mapping, "a mapping")
FUNCTION = OptionKind(callable, "a function")


def check_kinds(options: object, kinds: Mapping[str, OptionKind], *, owner: str = "") -> None:
    """Check the types of the options of an object, or of those that a mapping has.

    Args:
        options: The object, with an attribute for each option; or a mapping of the given options.
        kinds: The types of the options by name.
        owner: The class that has the options, for errors; empty for a function.

    Raises:
        TypeError: An option has another type. The error names it and shows no value.
    """
    for name, kind in kinds.items():
        if not isinstance(options, Mapping):
            value: Any = getattr(options, name)
        elif name in options:
            value = cast("Mapping[str, Any]", options)[name]
        else:
            continue
        if not kind.fits(value):
            raise type_error(_named(owner, name), value, kind.shown)


def check_kind(name: str, value: object, kind: OptionKind) -> None:
    """Check the type of one option.

    Raises:
        TypeError: It has another type. The error names it and shows no value.
    """
    if not kind.fits(value):
        raise type_error(name, value, kind.shown)


def check_number(
    name: str, value: object, least: float = 0.0, *, noun: str = "a number", exclusive: bool = False
) -> None:
    """Check a number that is finite and not below a bound.

    Args:
        name: The option, and the class that has it.
        value: The value.
        least: The bound.
        noun: The type in words, such as `a number of seconds`.
        exclusive: Whether the bound itself is too low.

    Raises:
        ConfigError: It is lower, infinite, or not a number (NaN), which every comparison would let through.
        TypeError: It has another type.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise type_error(name, value, noun)
    fits = least <= value < math.inf
    bound = "at least"
    if exclusive:
        fits = least < value < math.inf
        bound = "more than"
    if not fits:
        raise ConfigError(f"{name} is {noun}, finite and {bound} {least:g}, not {value!r}", field=name)


def check_duration(name: str, value: object) -> None:
    """Check a number of seconds that is finite and more than 0.

    Raises:
        ConfigError: It is 0 or less, infinite, or not a number (NaN).
        TypeError: It has another type.
    """
    check_number(name, value, noun="a number of seconds", exclusive=True)


def check_predicate(name: str, value: object) -> None:
    """Check a function that decides and is not awaited; None passes.

    Raises:
        TypeError: It is not a function, or an async one, whose coroutine would count as true.
    """
    if value is None:
        return
    if not callable(value):
        raise type_error(name, value, "a function")
    if any(map(inspect.iscoroutinefunction, (value, getattr(value, "__call__", None)))):  # noqa: B004
        raise _async_error(name)


def decided(name: str, answer: object) -> bool:
    """Return the decision of a function that `check_predicate` accepted.

    Raises:
        TypeError: It returned an awaitable, as a lambda around an async function does; it would count as true.
    """
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise _async_error(name)
    return bool(answer)


def _async_error(name: str) -> TypeError:
    return TypeError(f"{name} is not awaited; give a plain function, since what an async one returns counts as true")


def _named(owner: str, name: str) -> str:
    return f"{owner}.{name}" if owner else name


def check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Check an option with a few values.

    Raises:
        ValueError: It is another.
    """
    if value not in choices:
        raise choice_error(name, value, choices)


def choice_error(name: str, value: object, choices: Sequence[object]) -> ValueError:
    """Return the error for a value that is not among the few."""
    return ValueError(f"{name} is {alternatives(list(map(repr, choices)))}, not {value!r}")


def type_error(name: str, value: object, shown: str) -> TypeError:
    """Return the error for an option of another type than the `shown` one."""
    # The types alone: a value in the wrong place may be a secret, such as a URL with a password.
    return TypeError(f"{name} is {shown}, not {_shown_type(value)}")


def _shown_type(value: object) -> str:
    if isinstance(value, type):
        return f"the class {_type_name(value)}"
    members = _members(value)
    if not members:
        return _type_name(type(value))
    kinds = set(map(type, members))
    return f"{_type_name(type(value))} of {', '.join(sorted(map(_type_name, kinds)))}"


def _type_name(kind: type[object]) -> str:
    return kind.__name__
