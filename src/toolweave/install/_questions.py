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
        name: The name of the variable, header or argument, by which it is answered.
        required: Whether the server needs it.
        secret: Whether it is kept apart from the config.
        format: `string`, `number`, `boolean` or `filepath`.
        defaults: The values without an answer; several only of a repeated one.
        choices: The only valid answers; empty if any answer is valid.
        placeholder: An example of an answer.
        repeated: Whether it may have several answers.
        minimum: The least valid number.
        maximum: The greatest valid number.
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
            ConfigError: The answer is not one of the choices, not of the format, empty, or has a NUL character.
        """
        if not text:
            raise self._error("the answer is empty")
        if "\x00" in text:
            raise self._error("the answer has a NUL character")
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
    # The stricter of two uses counts: a value that is a secret anywhere is kept apart everywhere.
    found: dict[str, LaunchQuestion] = {}
    for question in questions:
        earlier = found.get(question.name)
        if earlier is None:
            found[question.name] = question
            continue
        uses = (earlier, question)
        found[question.name] = earlier.replace(
            required=any(use.required for use in uses),
            secret=any(use.secret for use in uses),
            repeated=all(use.repeated for use in uses),
        )
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
        # Names and missing values are checked for all questions before any answer is: one error names all of them.
        names = [question.name for question in questions]
        for name in given:
            if name not in names:
                raise ConfigError(f"{name!r} is not a value of this server; it has: {_listed(names) or 'none'}")
        missing: list[str] = []
        for question in questions:
            is_asked_later = deferred and question.secret
            if is_asked_later or given.get(question.name):
                continue
            if question.required and not question.defaults:
                missing.append(question.name)
        if missing:
            raise ConfigError(f"a value is missing for {_listed(missing)}")
        self._words: dict[str, list[str | SecretWord]] = {}
        for question in questions:
            self._words[question.name] = _answered(question, given.get(question.name, ()), deferred=deferred)

    def __getitem__(self, name: str) -> list[str | SecretWord]:
        """Return the answers to one question, none if it is left out."""
        return self._words.get(name, [])


def _answered(question: LaunchQuestion, given: Sequence[str], *, deferred: bool) -> list[str | SecretWord]:
    if question.secret and deferred:
        return [SecretWord(name=question.name, description=question.description)]
    if len(given) > 1 and not question.repeated:
        raise ConfigError(f"{shown(question.name)}: it takes one value, {len(given)} were given", field=question.name)
    texts = [question.checked(text) for text in given or question.defaults]
    if not question.secret:
        return list(texts)
    words: list[str | SecretWord] = []
    for number, text in enumerate(texts, 1):
        # each is kept in a file of its name
        name = question.name if number == 1 else f"{question.name}.{number}"
        words.append(SecretWord(name=name, description=question.description, value=Secret(text)))
    return words


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(shown, names))
