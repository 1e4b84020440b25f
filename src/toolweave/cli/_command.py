"""Commands declared by functions: every option and argument is declared once, in the function's signature.

A parameter's annotation is its whole declaration, `Annotated[TYPE, Option(...)]`, and its default is the
option's. A parameter whose type is a dataclass of such fields is a group of options that several commands share. Reads
no words (`parse.py`), renders no help (`help.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from toolweave._json_types import JsonObject
from toolweave.cli._exit_codes import ExitCode

Complete = Callable[[str], Sequence[str]]
CompleteAfter = Callable[[Sequence[str], str], Sequence[str]]
"""Function that returns the values that start with the incomplete word, for shell completion."""


class Option:
    """An option, beside its type and default; a `bool` is a flag, a tuple is given several times.

    Args:
        names: As they are typed, such as `"--config", "-c"`.
        help: One sentence.
        metavar: The value's name in the help; by default the choices of an enumeration, or `NUMBER`.
        complete: The values that a shell offers.
        minimum: The least number.
        hidden: Whether the help leaves it out.
        needs: The options that it is of use with only, as typed, each with the reason or an empty text; `"--a or --b"`
            for one of two.
        excludes: The options that contradict it, in the same form.
    """

    def __init__(
        self,
        *names: str,
        help: str = "",  # noqa: A002 - the word of every parser of options
        metavar: str | None = None,
        complete: Complete | None = None,
        minimum: float | None = None,
        hidden: bool = False,
        needs: Mapping[str, str] | Sequence[str] = (),
        excludes: Mapping[str, str] | Sequence[str] = (),
    ) -> None:
        self.names = names
        self.needs = _with_reasons(needs)
        self.excludes = _with_reasons(excludes)
        self.help = help
        self.metavar = metavar
        self.complete = complete
        self.minimum = minimum
        self.hidden = hidden


def _with_reasons(names: Mapping[str, str] | Sequence[str]) -> Mapping[str, str]:
    if isinstance(names, Mapping):
        return names
    return dict.fromkeys(names, "")


class Positional:
    """A positional argument, beside its type and default; a tuple takes all words that are left.

    Args:
        metavar: Its name in the help.
        help: One sentence.
        complete: The values that a shell offers.
        complete_after: The same, for values that depend on the positional words before them.
    """

    def __init__(
        self,
        metavar: str,
        *,
        help: str,  # noqa: A002 - as above
        complete: Complete | None = None,
        complete_after: CompleteAfter | None = None,
    ) -> None:
        self.metavar = metavar
        self.help = help
        self.complete = complete
        self.complete_after = complete_after


class Remainder:
    """The words after the first `--`, as they are.

    Args:
        metavar: Their names in the help.
    """

    def __init__(self, metavar: str) -> None:
        self.metavar = metavar


class CommandParameter:
    """A parameter of a command with its declaration.

    Attributes:
        name: Its name in Python.
        declared: The declaration.
        kind: The type of one value, such as `str` or an enumeration.
        many: Whether it is a tuple of them.
        default: Its value when it is not given; `MISSING` if it has to be given.
    """

    def __init__(self, name: str, hint: Any, default: Any) -> None:  # a hint is any type
        kind = hint.__origin__
        declared = hint.__metadata__[0]
        if isinstance(kind, UnionType):
            (kind,) = (one for one in get_args(kind) if one is not NoneType)
        self.name = name
        self.declared: Option | Positional | Remainder = declared
        self.many = get_origin(kind) is tuple
        self.kind: type[Any] = get_args(kind)[0] if self.many else kind
        self.default = default

    @property
    def is_flag(self) -> bool:
        """Whether it takes no value."""
        return self.kind is bool

    @property
    def required(self) -> bool:
        """Whether it has to be given; at least once where it is a tuple."""
        return self.default is MISSING

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of an enumeration; empty for every other type."""
        members: JsonObject = getattr(self.kind, "__members__", {})
        return tuple(str(member.value) for member in members.values())


class Command:
    """A command: a function whose signature declares its options and whose docstring is its help.

    Args:
        function: Called with the values of the options.
        examples: Lines as they are typed.
    """

    def __init__(self, function: Callable[..., ExitCode], *, examples: str) -> None:
        self.function = function
        self.help = inspect.cleandoc(function.__doc__ or "")
        self.examples = examples.strip().splitlines()
        self._groups: dict[str, Callable[..., Any]] = {}
        self.parameters = list(self._declared())

    @property
    def options(self) -> Iterator[tuple[CommandParameter, Option]]:
        """The options, as they are declared."""
        for one in self.parameters:
            if isinstance(one.declared, Option):
                yield one, one.declared

    @property
    def positionals(self) -> Iterator[tuple[CommandParameter, Positional]]:
        """The arguments, in the order in which they are typed."""
        for one in self.parameters:
            if isinstance(one.declared, Positional):
                yield one, one.declared

    @property
    def remainder(self) -> Remainder | None:
        """The words after `--`, if it takes any."""
        return next((one.declared for one in self.parameters if isinstance(one.declared, Remainder)), None)

    def run(self, values: JsonObject) -> ExitCode:
        """Call the function with the values of all parameters, those of a group as one value."""
        arguments = dict(values)
        for name, group in self._groups.items():
            arguments[name] = group(**{field.name: arguments.pop(field.name) for field in fields(group)})  # pyright: ignore[reportArgumentType]  # a dataclass
        return self.function(**arguments)

    def _declared(self) -> Iterator[CommandParameter]:
        """Yield the parameters, those of groups last."""
        hints = get_type_hints(self.function, include_extras=True)
        for parameter in inspect.signature(self.function).parameters.values():
            hint = hints[parameter.name]
            if is_dataclass(hint):
                self._groups[parameter.name] = hint  # pyright: ignore[reportArgumentType]  # the class, no instance
            else:
                if parameter.default is parameter.empty:
                    default = MISSING
                else:
                    default = parameter.default
                yield CommandParameter(parameter.name, hint, default)
        for group in self._groups.values():
            hints = get_type_hints(group, include_extras=True)
            yield from (CommandParameter(one.name, hints[one.name], one.default) for one in fields(group))  # pyright: ignore[reportArgumentType]


class CommandGroup:
    """Commands below one name.

    Args:
        help: What they are for, in one sentence.
        commands: The commands by name.
        default: The command that is meant when none is named; None if one has to be.
    """

    def __init__(self, help: str, commands: Mapping[str, Command], *, default: str | None = None) -> None:  # noqa: A002 - as above
        self.help = help
        self.commands = commands
        self.default = default

    @property
    def summaries(self) -> dict[str, str]:
        """The first line of the help of each command."""
        return {name: command.help.partition("\n")[0] for name, command in self.commands.items()}
