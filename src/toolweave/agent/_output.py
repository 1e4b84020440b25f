"""Structured output: the schema for the model, and the validation of its answer. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Self

from toolweave._json_types import JsonObject, as_object
from toolweave._repairs import Repair
from toolweave.schema import Problem, Validator, describe, schema_of
from toolweave.schema._object_around import object_around
from toolweave.schema._signature import adapter_of, validation_problems

_FENCE = "```"
_BRACKET = re.compile(r"[{\[]")
_DECODER = json.JSONDecoder()
_MAX_FENCES = 8
_MAX_VAIN = 16
_WRAPPED = "value"
JSON_AMONG_PROSE = Repair(
    given="a structured answer in a fence, between prose, or after drafts of it",
    read_as="the last value that fits",
    limit=f"{_MAX_FENCES} fences; {_MAX_VAIN} times the characters of the text are read in vain",
    switch="nothing: an answer that does not fit is sent back to the model",
)


class Output:
    """The type of an answer: its schema and its validation.

    Args:
        kind: A pydantic model, dataclass, TypedDict or any other type pydantic knows; or a JSON Schema as a mapping,
            whose answer stays JSON.

    Attributes:
        schema: JSON Schema of the answer: always of an object, because providers ask for one; another type is the
            object's one member `value`.

    Raises:
        SchemaError: The type has no JSON form, or the schema is not valid.
    """

    def __init__(self, kind: Any) -> None:  # any type, generic aliases included
        self._adapter: Any = None
        own = as_object(kind)
        if own is not None:
            # A schema without a type may describe an object through `properties` or `$ref`, so it is not wrapped.
            self._wraps = own.get("type", "object") != "object"
        else:
            own = schema_of(kind, what="output_type")
            self._wraps = own.get("type") != "object"
            self._adapter = adapter_of(kind, "output_type")
        self.schema: JsonObject = object_around(own, _WRAPPED) if self._wraps else own
        self._validator = Validator(self.schema)

    @property
    def form(self) -> JsonObject:
        """Its form as JSON, for stores that cannot keep a type."""
        return {"schema": self.schema, "wraps": self._wraps}

    @classmethod
    def from_form(cls, form: JsonObject) -> Self:
        """Return the output with this form; its values stay JSON, even if the original had a type."""
        made = cls(form["schema"])
        made._wraps = form["wraps"]
        return made

    def read(self, text: str) -> tuple[Any, Sequence[Problem]]:
        """Parse an answer; return its value and its validation problems.

        The JSON may be in a code fence or between prose, and there may be drafts of it: the whole text counts if it
        fits, else the last candidate that does.
        """
        # The whole text first: a text that is JSON may contain other JSON in its strings.
        value, wrong = self._parsed(text)
        if not wrong:
            return value, ()
        for candidate in _candidates(text):
            value, problems = self._validated(candidate)
            if not problems:
                return value, ()
            wrong = problems
        return None, wrong

    def complaint(self, problems: Sequence[Problem]) -> str:
        """Return the message to the model about an answer that does not validate."""
        return (
            f"The answer does not fit the requested type:\n{describe(problems)}\n"
            f"Answer again with nothing but JSON that fits this schema: {json.dumps(self.schema, ensure_ascii=False)}"
        )

    def _parsed(self, text: str) -> tuple[Any, Sequence[Problem]]:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as exc:
            return None, (Problem(path="", message=f"is not JSON: {exc}"),)
        return self._validated(found)

    def _validated(self, found: Any) -> tuple[Any, Sequence[Problem]]:
        """Return the value that an answer's JSON stands for, and its validation problems; see `read`."""
        problems = self._validator.problems(found)
        if problems and self._wraps and not self._validator.problems({_WRAPPED: found}):
            # some models leave out the object around it
            found = {_WRAPPED: found}
            problems = ()
        if problems:
            return None, problems
        value = found[_WRAPPED] if self._wraps else found
        if self._adapter is None:
            return value, ()
        return self._converted(value)

    def _converted(self, value: Any) -> tuple[Any, Sequence[Problem]]:
        """Return a value of the requested Python type, and its validation problems."""
        from pydantic import ValidationError  # only agents with an output_type need it

        try:
            # as JSON, so that dates and the like are read from their texts
            return self._adapter.validate_json(json.dumps(value)), ()
        except ValidationError as exc:
            return None, validation_problems(exc)


def _candidates(text: str) -> Sequence[Any]:
    """Return the JSON values within an answer, the last one first: objects, arrays, and contents of code fences.

    A model's text is not trusted, so the time is bounded: by the number of fences, and of characters that are read in
    vain where a bracket does not begin JSON.
    """
    found: list[tuple[int, Any]] = []
    left = _MAX_VAIN * len(text)
    place = _next_bracket(text, 0)
    while place >= 0 and left > 0:
        try:
            value, end = _DECODER.raw_decode(text, place)
        except json.JSONDecodeError as exc:
            # What the decoder has read in vain. Without a bound, a text of brackets would take quadratic time.
            left -= exc.pos - place + 1
            place = _next_bracket(text, place + 1)
        except (ValueError, RecursionError):
            # A number too long, or brackets too deep.
            break
        else:
            found.append((place, value))
            place = _next_bracket(text, end)
    found += _fenced(text)
    found.sort(key=lambda one: one[0], reverse=True)
    return [value for _, value in found]


def _next_bracket(text: str, start: int) -> int:
    match = _BRACKET.search(text, start)
    if match is None:
        return -1
    return match.start()


def _fenced(text: str) -> Iterator[tuple[int, Any]]:
    """Yield the places and values of JSON in code fences; a number or a text is found nowhere else."""
    place = 0
    for number, inside in enumerate(text.split(_FENCE, 2 * _MAX_FENCES)):
        word, newline, rest = inside.partition("\n")
        named = newline and not word.lstrip().startswith(("{", "[", '"'))
        if number % 2:
            with suppress(ValueError, RecursionError):
                yield place, json.loads(rest if named else inside)
        place += len(inside) + len(_FENCE)
