"""Parsing of a command line into the values of a command's parameters. Executes and prints nothing.

Options and arguments come in any order: `--name value`, `--name=value`, `-n value`, `-nvalue`, and flags of one letter
together. A value may begin with a dash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from toolweave._json_types import Json, JsonObject
from toolweave._text import alternatives
from toolweave.cli._command import Command, CommandParameter, Option, Positional, Remainder
from toolweave.cli._exit_codes import CommandError
from toolweave.cli._help import HELP_NAMES, option_form


def parse(command: Command, words: Sequence[str]) -> Json | None:
    """Return the values of all parameters by name, None when help is asked for.

    Raises:
        CommandError: An option is unknown or lacks its value, a value is not of its type, an argument is missing, or
            there is one too many, or two options contradict each other.
    """
    before, after = _split(words)
    by_name: dict[str, CommandParameter] = {}
    for parameter, option in command.options:
        by_name.update(dict.fromkeys(option.names, parameter))
    given: dict[str, list[str]] = {}
    free: list[str] = []
    try:
        for name, word in tokens(before, by_name):
            if name in HELP_NAMES:
                return None
            if name:
                given.setdefault(by_name[name].name, []).append(word)
            else:
                free.append(word)
        _place(command, free, given)
    except CommandError as error:
        if not error.hint:
            from toolweave.cli._slips import slip_hint  # only a slip needs it

            error.hint = slip_hint(command, before, free, error.unknown)
        raise
    if after is None:
        after = ()
    elif command.remainder is None:
        raise CommandError("no command is expected after --")
    values: Json = {}
    for parameter in command.parameters:
        values[parameter.name] = _value(parameter, given.get(parameter.name), after)
    _check_combination(command, values)
    return values


def _check_combination(command: Command, values: JsonObject) -> None:
    """Check the relations that options declare; an option with its default value counts as not given.

    Raises:
        CommandError: An option is given without one that it needs, or beside one that contradicts it.
    """
    chosen = [option for parameter, option in command.options if values[parameter.name] != parameter.default]
    typed = set(chain.from_iterable(option.names for option in chosen))
    for option in chosen:
        for needed, reason in option.needs.items():
            if typed.isdisjoint(needed.split(" or ")):
                raise CommandError(f"{option.names[0]} goes with {needed}{_because(reason)}")
        for other, reason in option.excludes.items():
            if other in typed:
                raise CommandError(f"{option.names[0]} does not go with {other}{_because(reason)}")


def _because(reason: str) -> str:
    if reason:
        return f": {reason}"
    return ""


def _split(words: Sequence[str]) -> tuple[Sequence[str], tuple[str, ...] | None]:
    """Return the words before the first `--`, and those after it; None without one.

    Raises:
        CommandError: Nothing follows it.
    """
    if "--" not in words:
        return words, None
    at = words.index("--")
    if at == len(words) - 1:
        raise CommandError("after -- the command of a stdio server is expected")
    return words[:at], tuple(words[at + 1 :])


def tokens(words: Sequence[str], by_name: Mapping[str, CommandParameter]) -> Iterator[tuple[str, str]]:
    """Yield each option by the name that was typed, with its value, and every other word with an empty name."""
    # One iterator for both loops: an option takes its value from the words that the outer loop has not seen yet.
    left = iter(words)
    for word in left:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            if not _takes_value(name, by_name):
                if equals:
                    raise CommandError(f"{name} takes no value")
                yield name, ""
            else:
                yield name, value if equals else _next(left, name, by_name)
        elif word.startswith("-") and word != "-":
            yield from _letters(word, left, by_name)
        else:
            yield "", word


def _letters(word: str, left: Iterator[str], by_name: Mapping[str, CommandParameter]) -> Iterator[tuple[str, str]]:
    """Yield the combined options of one letter; the first that takes a value takes the rest."""
    for place, letter in enumerate(word[1:], 2):
        name = f"-{letter}"
        if _takes_value(name, by_name):
            yield name, word[place:] or _next(left, name, by_name)
            return
        yield name, ""


def _takes_value(name: str, by_name: Mapping[str, CommandParameter]) -> bool:
    if name in HELP_NAMES:
        return False
    if name not in by_name:
        raise CommandError(f"unknown option {name}", unknown=name)
    return not by_name[name].is_flag


def _next(left: Iterator[str], name: str, by_name: Mapping[str, CommandParameter]) -> str:
    word = next(left, None)
    if word is not None:
        return word
    error = CommandError(f"{name} needs a value")
    declared = by_name[name].declared
    if isinstance(declared, Option):
        error.hint = option_form(by_name[name], declared)
    raise error


def _place(command: Command, free: Sequence[str], given: dict[str, list[str]]) -> None:
    """Assign the words that belong to no option to the arguments, in their order."""
    left = list(free)
    for one, declared in command.positionals:
        count = len(left) if one.many else 1
        taken = left[:count]
        left = left[count:]
        if taken:
            given[one.name] = taken
        elif one.required:
            raise CommandError(f"Missing argument {declared.metavar}")
    if left:
        from toolweave.config.secret_args import mask_args  # only a slip needs it

        (masked,) = mask_args(left[:1])
        raise CommandError(f"unexpected argument {masked!r}")


def _value(one: CommandParameter, words: Sequence[str] | None, after: tuple[str, ...]) -> Any:
    """Return the value of a parameter; of an option that was given several times and takes one, the last counts."""
    match one.declared:
        case Remainder():
            return after
        case Option(names=(label, *_)) if words is not None:
            pass
        case Positional(metavar=label) if words is not None:
            pass
        case _:
            return one.default
    values = tuple(_converted(one, word, label) for word in words)
    if one.many:
        return values
    return values[-1]


def _converted(one: CommandParameter, word: str, label: str) -> Any:
    if one.is_flag:
        return True
    if one.choices and word not in one.choices:
        raise CommandError(f"{label}: expected {alternatives(list(one.choices))}, got {word!r}")
    try:
        value = one.kind(word)
    except ValueError:
        raise CommandError(f"{label}: expected a {'whole ' * (one.kind is int)}number, got {word!r}") from None
    if isinstance(one.declared, Option):
        least = one.declared.minimum
    else:
        least = None
    if least is not None and not value >= least:
        raise CommandError(f"{label}: expected at least {least:g}, got {word}")
    return value
