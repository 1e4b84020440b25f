"""Values that a published server needs from a person, and the check of each answer. Does not ask."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from toolweave._value import Value
from toolweave.config import Secret
from toolweave.errors import ConfigError
from toolweave.install._launch import SecretWord
from toolweave.install._records import shown

_TRUE = ("true", "yes", "y", "1")
_FALSE = ("false", "no", "n", "0")


class LaunchQuestion(Value, frozen=True, kw_only=True):
    """A value that a server needs, as its publisher describes it.

    Attributes:
        name: Under which it is answered: of a variable, a header, an argument.
        required: Whether the server cannot do without it.
        secret: Whether it is kept apart from the config.
        format: `string`, `number`, `boolean` or `filepath`.
        defaults: Taken where there is no answer; several only of a repeated one.
        choices: The only answers that are taken, if there are any.
        placeholder: An example of an answer.
        repeated: Whether it may have several answers.
        minimum: The least number.
        maximum: The greatest number.
    """

    name: str
    description: str = ""
    required: bool = False
    secret: bool = False
    format: str = "string"
    defaults: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    placeholder: str = ""
    repeated: bool = False
    minimum: float | None = None
    maximum: float | None = None

    def checked(self, text: str) -> str:
        """Return an answer in the form it is written down: paths absolute, booleans as `true` and `false`.

        Raises:
            ConfigError: It is none of the choices, not of the format, empty, or has a character that nothing takes.
        """
        if not text:
            raise self._error("an empty answer is none")
        if "\x00" in text:
            raise self._error("a NUL character is in it")
        if self.choices and text not in self.choices:
            raise self._error(f"expected {', '.join(map(shown, self.choices))}, got {self._quoted(text)}")
        if self.format == "number":
            return self._number(text)
        if self.format == "boolean":
            return self._boolean(text)
        if self.format == "filepath":
            return str(Path(text).expanduser().absolute())
        return text

    def _number(self, text: str) -> str:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise self._error(f"expected a number, got {self._quoted(text)}")
        if self.minimum is not None and number < self.minimum:
            raise self._error(f"expected at least {self.minimum:g}, got {self._quoted(text)}")
        if self.maximum is not None and number > self.maximum:
            raise self._error(f"expected at most {self.maximum:g}, got {self._quoted(text)}")
        return text

    def _boolean(self, text: str) -> str:
        word = text.lower()
        if word not in (*_TRUE, *_FALSE):
            raise self._error(f"expected true or false, got {self._quoted(text)}")
        if word in _TRUE:
            return "true"
        return "false"

    def _quoted(self, text: str) -> str:
        if self.secret:
            return "something else"
        return repr(shown(text))

    def _error(self, message: str) -> ConfigError:
        return ConfigError(f"{shown(self.name)}: {message}", field=self.name)


def merged(questions: Iterable[LaunchQuestion]) -> tuple[LaunchQuestion, ...]:
    """Return the questions with one for each name: required, or secret, if any of its uses is."""
    found: dict[str, LaunchQuestion] = {}
    for one in questions:
        before = found.get(one.name)
        if before is not None:
            one = before.replace(
                required=before.required or one.required,
                secret=before.secret or one.secret,
                repeated=before.repeated and one.repeated,
            )
        found[one.name] = one
    return tuple(found.values())


class LaunchAnswers:
    """The answers to a server's questions; unanswered ones get their defaults.

    Args:
        questions: The questions.
        given: The answers by name; several of a repeated one.
        deferred: Whether secrets are asked for later, by the program that starts the server.

    Raises:
        ConfigError: An answer is wrong or to no question, or a required one is missing; all of these are named.
    """

    def __init__(
        self,
        questions: Sequence[LaunchQuestion],
        given: Mapping[str, Sequence[str]],
        *,
        deferred: bool = False,
    ) -> None:
        known = {one.name: one for one in questions}
        for name in given:
            if name not in known:
                raise ConfigError(f"{name!r} is nothing that is asked for; there is {_listed(known) or 'nothing'}")
        missing = [
            one.name
            for one in questions
            if one.required and not one.defaults and not given.get(one.name) and not (deferred and one.secret)
        ]
        if missing:
            raise ConfigError(f"a value is missing for {_listed(missing)}")
        self._words = {one.name: _answered(one, given.get(one.name, ()), deferred=deferred) for one in questions}

    def __getitem__(self, name: str) -> list[str | SecretWord]:
        """Return the answers to one question, none where it is left out."""
        return self._words.get(name, [])


def _answered(question: LaunchQuestion, given: Sequence[str], *, deferred: bool) -> list[str | SecretWord]:
    if question.secret and deferred:
        return [SecretWord(name=question.name, description=question.description)]
    if len(given) > 1 and not question.repeated:
        raise ConfigError(f"{shown(question.name)}: it takes one value, {len(given)} were given", field=question.name)
    texts = [question.checked(text) for text in given or question.defaults]
    if not question.secret:
        return list(texts)
    names = (question.name if at == 1 else f"{question.name}.{at}" for at in range(1, len(texts) + 1))
    return [
        SecretWord(name=name, description=question.description, value=Secret(text))
        for name, text in zip(names, texts, strict=True)
    ]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(shown, names))
