"""Structured output: the schema for the model, and the validation of its answer. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, cast

from toolweave.schema._problems import Problem, describe
from toolweave.schema._signature import adapter_of, schema_of, validation_problems
from toolweave.schema._validate import Validator

_FENCE = "```"
_MOST_FENCES = 8
_WRAPPED = "value"


class Output:
    """The type of an answer: its schema and its validation.

    Args:
        kind: A pydantic model, dataclass, TypedDict or any other type pydantic knows; or a JSON Schema as a mapping,
            whose answer stays JSON.

    Attributes:
        schema: JSON Schema of the answer: always of an object, because providers ask for one; another type is the
            object's one member `value`.

    Raises:
        SchemaError: The type has no JSON form, or the schema is none.
    """

    def __init__(self, kind: Any) -> None:  # any type, generic aliases included
        self._adapter: Any = None
        if isinstance(kind, Mapping):
            own = cast("Mapping[str, Any]", kind)
            self._wraps = own.get("type", "object") != "object"
        else:
            own = schema_of(kind, what="output_type")
            self._wraps = own.get("type") != "object"
            self._adapter = adapter_of(kind, "output_type")
        self.schema: Mapping[str, Any] = _wrapped(own) if self._wraps else own
        self._validator = Validator(self.schema)

    @property
    def form(self) -> Mapping[str, Any]:
        """Its form as JSON, for stores that cannot keep a type."""
        return {"schema": self.schema, "wraps": self._wraps}

    @classmethod
    def from_form(cls, form: Mapping[str, Any]) -> Self:
        """Return the output with this form; its values stay JSON, even if the original had a type."""
        made = cls(form["schema"])
        made._wraps = form["wraps"]
        return made

    def read(self, text: str) -> tuple[Any, Sequence[Problem]]:
        """Parse an answer; return its value and its validation problems.

        The JSON may be in a code fence or between prose; of several candidates the first that validates counts.
        """
        wrong: Sequence[Problem] = ()
        parsed = False
        for candidate in _candidates(text):
            try:
                found = json.loads(candidate)
            except (ValueError, RecursionError) as exc:
                wrong = wrong or (Problem(path="", message=f"is not JSON: {exc}"),)
                continue
            value, problems = self._fitting(found)
            if not problems:
                return value, ()
            wrong, parsed = (wrong if parsed else problems), True
        return None, wrong

    def complaint(self, problems: Sequence[Problem]) -> str:
        """Return the message to the model about an answer that does not validate."""
        return (
            f"The answer does not fit the requested type:\n{describe(problems)}\n"
            f"Answer again with nothing but JSON that fits this schema: {json.dumps(self.schema, ensure_ascii=False)}"
        )

    def _fitting(self, found: Any) -> tuple[Any, Sequence[Problem]]:
        problems = self._validator.problems(found)
        if problems:
            return None, problems
        value = found[_WRAPPED] if self._wraps else found
        return (value, ()) if self._adapter is None else self._made(value)

    def _made(self, value: Any) -> tuple[Any, Sequence[Problem]]:
        from pydantic import ValidationError  # only agents with an output_type need it

        try:
            # as JSON, so that dates and the like are read from their texts
            return self._adapter.validate_json(json.dumps(value)), ()
        except ValidationError as exc:
            return None, validation_problems(exc)


def _candidates(text: str) -> Iterator[str]:
    """Yield the parts of an answer that may be its JSON: all of it, code fences, and the outermost braces.

    In linear time, and no more than a few, because a model's text is not trusted.
    """
    yield text
    for inside in text.split(_FENCE, 2 * _MOST_FENCES)[1::2]:
        word, newline, rest = inside.partition("\n")
        yield rest if newline and not word.lstrip().startswith(("{", "[", '"')) else inside
    begin, end = text.find("{"), text.rfind("}")
    if 0 <= begin < end:
        yield text[begin : end + 1]


def _wrapped(schema: Mapping[str, Any]) -> dict[str, Any]:
    inner = dict(schema)
    shared = {key: inner.pop(key) for key in ("$schema", "$defs") if key in inner}
    return {
        **shared,
        "type": "object",
        "properties": {_WRAPPED: inner},
        "required": [_WRAPPED],
        "additionalProperties": False,
    }
