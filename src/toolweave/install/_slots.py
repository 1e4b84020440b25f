"""Inputs of `server.json` as slots for answers: the questions of each, and the words that the answers make of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from toolweave._value import Value
from toolweave.errors import RegistryError
from toolweave.install._launch import LaunchWord, SecretWord, joined, literal
from toolweave.install._questions import LaunchAnswers, LaunchQuestion
from toolweave.install._records import ServerInput, shown

_VARIABLE = re.compile(r"\{([^{}]*)\}")
_FORMATS = ("string", "number", "boolean", "filepath")


class ValueSlot(Value, frozen=True, kw_only=True):
    """A slot for a value: that of a variable, a header or an argument, or a URL.

    Attributes:
        name: The name of the question if the value itself is asked for.
        source: The publisher's description of it.
    """

    name: str
    source: ServerInput

    def questions(self) -> Iterator[LaunchQuestion]:
        """Yield the questions: the value, or the variables in a fixed one.

        Raises:
            RegistryError: A text of the publisher may not go into a config.
        """
        source = self.source
        if source.value is None:
            yield _question(self.name, source, repeated=source.is_repeated)
            return
        for part, is_variable in self._parts():
            variable = source.variables[part] if is_variable else None
            if variable is None:
                literal(part, f"the value of {shown(self.name)!r}")
            elif variable.value is None:
                yield _question(
                    part,
                    variable,
                    secret=source.is_secret,
                    required=source.is_required,
                    repeated=source.is_repeated,
                )
            else:
                literal(variable.value, f"the value of {shown(part)!r}")

    def words(self, answers: LaunchAnswers) -> list[LaunchWord]:
        """Return the words that the answers make: none if it is left out, several if it is repeated."""
        if self.source.value is None:
            return [(part,) for part in answers[self.name]]
        # An optional value whose variable has no answer is left out as a whole: `--dir={folder}` is of no use without.
        # of each part one value, or several if it is repeated
        columns: list[Sequence[str | SecretWord]] = []
        for part, is_variable in self._parts():
            columns.append(self._texts(part, answers) if is_variable else (part,))
        is_left_out = not self.source.is_required and not all(columns)
        if is_left_out:
            return []
        count = 1
        if self.source.is_repeated:
            count = max(1, *map(len, columns))
        return [joined(_nth(column, at) for column in columns) for at in range(count)]

    def _texts(self, name: str, answers: LaunchAnswers) -> list[str | SecretWord]:
        fixed = self.source.variables[name].value
        if fixed is None:
            return answers[name]
        return [fixed]

    def _parts(self) -> Iterator[tuple[str, bool]]:
        """Yield the parts of a fixed value: texts, and the variables among them; unknown braces are text."""
        value = self.source.value
        if value is None:
            return
        start = 0
        for match in _VARIABLE.finditer(value):
            if match[1] in self.source.variables:
                yield value[start : match.start()], False
                yield match[1], True
                start = match.end()
        yield value[start:], False


class ArgumentSlot(Value, frozen=True, kw_only=True):
    """An argument of a command line.

    Attributes:
        place: Its value.
        flag: The name that stands before each value, with its dashes; empty for a positional one.
    """

    place: ValueSlot
    flag: str = ""

    @classmethod
    def of(cls, source: ServerInput, number: int) -> ArgumentSlot:
        """Return the slot of the `number`th argument of a package.

        Raises:
            RegistryError: It is neither positional nor named, or its name is not an option's.
        """
        if source.type not in ("named", "positional"):
            raise RegistryError(f"argument {number} is of the type {shown(source.type)!r}, which is not known")
        if source.type == "positional":
            return cls(place=ValueSlot(name=source.value_hint or source.name or f"argument{number}", source=source))
        flag = literal(source.name, f"the name of argument {number}")
        if not flag.startswith("-") or flag == "--":
            raise RegistryError(f"the name of argument {number} is {shown(flag)!r}; a name with its dashes is expected")
        return cls(place=ValueSlot(name=flag, source=source), flag=flag)

    def words(self, answers: LaunchAnswers) -> list[LaunchWord]:
        """Return its words; a name and its value are two."""
        values = self.place.words(answers)
        if not self.flag:
            return values
        is_switch = self.place.source.value == ""
        words: list[LaunchWord] = []
        for value in values:
            words.append((self.flag,))
            if not is_switch:
                words.append(value)
        return words


def _nth(found: Sequence[str | SecretWord], at: int) -> str | SecretWord:
    """Return the answer at a position, the last one beyond the end, and an empty text without answers."""
    if found:
        return found[min(at, len(found) - 1)]
    return ""


def _question(
    name: str, source: ServerInput, *, secret: bool = False, required: bool = False, repeated: bool = False
) -> LaunchQuestion:
    what = f"{shown(name)!r}"
    for choice in source.choices:
        literal(choice, f"a choice of {what}")
    return LaunchQuestion(
        name=name,
        description=source.description,
        required=source.is_required or required,
        secret=source.is_secret or secret,
        format=source.format if source.format in _FORMATS else "string",
        defaults=_defaults(source, what),
        choices=source.choices,
        placeholder=source.placeholder,
        repeated=repeated,
    )


def _defaults(source: ServerInput, what: str) -> tuple[str, ...]:
    if source.default in (None, ""):
        return ()
    if isinstance(source.default, bool):
        text = str(source.default).lower()
    else:
        text = str(source.default)
    return (literal(text, f"the default of {what}"),)
