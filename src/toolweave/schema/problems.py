"""Validation problems in words a model can act on.

Turns the validator's errors into sentences; shows at most 40 characters of a value, and nothing
of one whose name suggests a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from toolweave._json_types import text_or_empty
from toolweave._value import Value
from toolweave.errors import shortened
from toolweave.schema._json_values import JsonValue, members, named
from toolweave.schema._json_values import text as text_of

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

__all__ = [
    "MAX_PROBLEMS",
    "Problem",
    "branches_with_errors",
    "describe",
    "meant_branches",
    "nearest",
    "path_text",
    "problems_of",
]

MAX_PROBLEMS = 10
"""Problems reported at a time; a model that fixes ten gets the next."""

_GLIMPSE = 40
_LISTED = 20
_HINTS = 3
"""Wrong names that are compared with the right ones."""
_MAX_COMPARED_LENGTH = 64
_MAX_COMPARED = 500
_MAX_BRANCHES = 200
"""Alternatives that are read for the values that they expect."""
_MAX_PATH = 200
_MAX_MESSAGE = 1_000
_SENSITIVE = r"(?i)passw|secret|token|api[-_]?key|credential|authori[sz]ation|private[-_]?key"
_IDENTIFIER = r"[^\W\d][\w$-]*"

_PROPERTIES = ("additionalProperties", "unevaluatedProperties")

_LIMITS = {
    "minimum": "must be at least {limit}",
    "maximum": "must be at most {limit}",
    "exclusiveMinimum": "must be greater than {limit}",
    "exclusiveMaximum": "must be less than {limit}",
    "multipleOf": "must be a multiple of {limit}",
    "minLength": "must have at least {limit} characters",
    "maxLength": "must have at most {limit} characters",
    "minItems": "must have at least {limit} items",
    "maxItems": "must have at most {limit} items",
    "minProperties": "must have at least {limit} properties",
    "maxProperties": "must have at most {limit} properties",
    "pattern": "must match the pattern {limit}",
    "uniqueItems": "must not contain the same item twice",
    "not": "has a form that is not allowed",
    "contains": "does not contain the items it must",
    "additionalItems": "has more items than are allowed",
    "unevaluatedItems": "has more items than are allowed",
    "propertyNames": "has a property whose name is not allowed",
}


class Problem(Value, frozen=True, kw_only=True):
    """One violation of a schema by a value.

    Attributes:
        path: The location, as a person writes it: `filters[0].name`; `""` for the value itself.
        message: The expected form, and the value received.
    """

    path: str
    message: str

    def __str__(self) -> str:
        if self.path:
            return f'"{self.path}": {self.message}'
        return self.message


def describe(problems: Iterable[Problem]) -> str:
    """Return problems as one text, a line each when there are several."""
    lines = list(map(str, problems))
    if len(lines) == 1:
        return lines[0]
    return "\n".join(f"- {line}" for line in lines)


def path_text(parts: Iterable[str | int]) -> str:
    """Return a path into a JSON value as a person writes it: `filters[0].name`, `headers["X-Id"]`."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(_IDENTIFIER, part):
            text += f".{part}" if text else part
        else:
            text += f"[{_quoted(part)}]"
    return text


def problems_of(errors: Sequence[ValidationError], schema: JsonValue) -> tuple[Problem, ...]:
    """Return the validator's errors as problems, without repeats, at most `MAX_PROBLEMS` and a count of the rest.

    Args:
        errors: The errors.
        schema: The schema they were found with.
    """
    found: dict[Problem, None] = {}
    explained = 0
    for error in errors:
        if len(found) > MAX_PROBLEMS:
            break
        found |= dict.fromkeys(_explain(error, schema))
        explained += 1
    problems = list(found)
    if len(problems) > MAX_PROBLEMS:
        more = len(problems) - MAX_PROBLEMS + sum(map(_count, errors[explained:]))
        problems[MAX_PROBLEMS:] = [Problem(path="", message=f"... and {more} more problems")]
    return tuple(problems)


def _count(error: ValidationError) -> int:
    """Return the number of problems in an error."""
    if error.kind.name in _PROPERTIES:
        return len(error.kind.value)
    return 1


def _explain(error: ValidationError, schema: JsonValue) -> list[Problem]:
    """Return an error as problems whose messages are of bounded length, for any schema and value."""
    return list(map(_bounded, _explained(error, schema)))


def _bounded(problem: Problem) -> Problem:
    return Problem(path=shortened(problem.path, _MAX_PATH), message=shortened(problem.message, _MAX_MESSAGE))


def _explained(error: ValidationError, schema: JsonValue) -> list[Problem]:
    keyword = error.kind.name
    if keyword in _PROPERTIES:
        return _unknown_properties(error, schema)
    if keyword in {"anyOf", "oneOf"}:
        return _no_alternative(error, schema)
    return [Problem(path=path_text(error.instance_path), message=_sentence(error, keyword))]


def _sentence(error: ValidationError, keyword: str) -> str:
    limit = error.kind.value
    if keyword == "required":
        return f"missing required property {_quoted(limit)}"
    if keyword == "type":
        return f"expected {' or '.join(limit)}, got {_shown(error)}"
    if keyword == "enum":
        more = f", ... ({len(limit)} in all)" if len(limit) > _LISTED else ""
        return f"must be one of {_options(limit)}{more}; got {_shown(error)}"
    if keyword == "const":
        return f"must be {_glimpse(limit)}; got {_shown(error)}"
    if keyword in _LIMITS:
        sentence = _LIMITS[keyword].format(limit=_glimpse(limit))
        if isinstance(error.instance, (int, float, str)):
            return f"{sentence}, got {_shown(error)}"
        return sentence
    if keyword == "falseSchema":
        if error.schema_path and error.schema_path[-1] in _PROPERTIES:
            return "takes no properties"
        return "is not allowed here"
    return f"does not satisfy {keyword!r} of the schema"


def _unknown_properties(error: ValidationError, schema: JsonValue) -> list[Problem]:
    owner = _owner(error, schema)
    allowed: list[str] | None = None
    if isinstance(owner, dict):
        allowed = sorted(named(owner, "properties"))
    path = path_text(error.instance_path)
    names: list[str] = error.kind.value
    found: list[Problem] = []
    for number, name in enumerate(names):
        # Of those that are not shown only the number counts, so they are not compared.
        if number <= MAX_PROBLEMS:
            message = _unknown(name, allowed, hints=number < _HINTS)
        else:
            message = f"unknown property number {number}"
        found.append(Problem(path=path, message=message))
    return found


def _unknown(name: str, allowed: list[str] | None, *, hints: bool) -> str:
    text = f"{_quoted(name)} is not a known property"
    if allowed is None:
        return text
    if not allowed:
        return f"{text}; this object has no properties"
    near = nearest(name, allowed, n=1) if hints else []
    hint = f"; did you mean {_quoted(near[0])}?" if near else ""
    shown = ", ".join(shortened(one, _GLIMPSE) for one in allowed[:_LISTED])
    more = ", ..." if len(allowed) > _LISTED else ""
    return f"{text}{hint} (allowed: {shown}{more})"


def _options(values: Sequence[JsonValue]) -> str:
    """Return the first of several values as text."""
    return ", ".join(map(_glimpse, values[:_LISTED]))


def nearest(name: str, known: Iterable[str], *, n: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return the known names most similar to an unknown one, the best first.

    Comparing is quadratic in a name's length: names over 64 characters, and those beyond 500, are skipped.
    """
    import difflib  # only a wrong name needs it

    if len(name) > _MAX_COMPARED_LENGTH:
        return []
    comparable = (one for one in known if len(one) <= _MAX_COMPARED_LENGTH)
    return difflib.get_close_matches(name, islice(comparable, _MAX_COMPARED), n=n, cutoff=cutoff)


def _no_alternative(error: ValidationError, schema: JsonValue) -> list[Problem]:
    """Explain the one alternative that types and constants identify as intended; else all of them."""
    path = path_text(error.instance_path)
    branches = branches_with_errors(error)
    # A branch without errors fits. Then the error is that several do.
    if not branches or not all(branches):
        return [Problem(path=path, message="fits more than one of the alternatives, exactly one is wanted")]
    depth = len(error.instance_path)
    fitting = meant_branches(error)
    if len(fitting) == 1:
        return _explain_all(fitting[0], schema)
    if fitting:
        options = [describe(_explain_all(branch, schema)) for branch in fitting[:3]]
        text = "; or ".join(option.replace("\n", " ") for option in dict.fromkeys(options))
        return [Problem(path=path, message=f"fits none of {len(branches)} alternatives: {text}")]
    expected = list(dict.fromkeys(_expected(branch, depth) for branch in branches[:_MAX_BRANCHES]))
    more = ""
    if max(len(expected), len(branches) - _MAX_BRANCHES) > _LISTED:
        more = f" or ... ({len(branches)} in all)"
    return [Problem(path=path, message=f"expected {' or '.join(expected[:_LISTED])}{more}, got {_shown(error)}")]


def _explain_all(errors: Iterable[ValidationError], schema: JsonValue) -> list[Problem]:
    problems: list[Problem] = []
    for error in errors:
        problems += _explain(error, schema)
    return problems


def branches_with_errors(error: ValidationError) -> list[list[ValidationError]]:
    """Return the errors of each alternative of `anyOf` or `oneOf`; none for an error of another keyword."""
    return getattr(error.kind, "context", [])


def meant_branches(error: ValidationError) -> list[list[ValidationError]]:
    """Return the errors of each alternative that takes a value of this kind, so that it may be the intended one."""
    depth = len(error.instance_path)
    return [branch for branch in branches_with_errors(error) if not _is_for_other_kind(branch, depth)]


def _is_for_other_kind(branch: list[ValidationError], depth: int) -> bool:
    return any(_is_other_kind(one, depth) for one in branch)


def _is_other_kind(error: ValidationError, depth: int) -> bool:
    """Return whether an error rules an alternative out: another type, or another constant."""
    level = len(error.instance_path) - depth
    if level == 0:
        return error.kind.name in {"type", "enum", "const"}
    return level == 1 and error.kind.name == "const"


def _expected(branch: list[ValidationError], depth: int) -> str:
    error = next(found for found in branch if _is_other_kind(found, depth))
    limit = error.kind.value
    if error.kind.name == "type":
        return " or ".join(limit)
    if error.kind.name == "enum":
        return f"one of {_options(limit)}"
    if len(error.instance_path) > depth:
        return f"{path_text(error.instance_path[depth:])} = {_glimpse(limit)}"
    return _glimpse(limit)


def _owner(error: ValidationError, schema: JsonValue) -> JsonValue:
    """Return the subschema that holds an error's keyword, or None when it cannot be found."""
    node = schema
    base = (error.absolute_keyword_location or "").partition("#")[0]
    # Paths inside an embedded schema with an `$id` start there, not at the root.
    if base and text_of(members(schema), "$id") != base:
        return None
    for part in error.schema_path[:-1]:
        if isinstance(node, dict) and isinstance(part, str):
            node = node.get(part)
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
        else:
            return None
    return node


def _shown(error: ValidationError) -> str:
    """Return the type of the offending value and, for scalars that are not secret, a glimpse of it."""
    value = error.instance
    name = _type_name(value)
    if value is None or isinstance(value, (dict, list)):
        return name
    if any(map(_is_sensitive, error.instance_path)):
        return name
    return f"{name} {_glimpse(value)}"


def _is_sensitive(part: str | int) -> bool:
    return re.search(_SENSITIVE, text_or_empty(part)) is not None


def _type_name(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names: dict[type, str] = {str: "string", int: "integer", dict: "object", list: "array"}
    return next((name for kind, name in names.items() if isinstance(value, kind)), "number")


def _glimpse(value: object) -> str:
    if isinstance(value, str):
        return _quoted(value)
    text = _json(value)
    if len(text) <= _GLIMPSE:
        return text
    return f"{text[: _GLIMPSE - 3]}..."


def _quoted(text: str) -> str:
    if len(text) > _GLIMPSE:
        text = f"{text[: _GLIMPSE - 3]}..."
    return _json(text)


def _json(value: object) -> str:
    import json  # only bad input needs it

    return json.dumps(value, ensure_ascii=False, default=str)
