"""Validation problems in words a model can act on.

Turns the validator's errors into sentences; shows at most 40 characters of a value, and nothing
of one whose name suggests a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from toolweave._value import Value
from toolweave.errors import shortened

MAX_PROBLEMS = 10
"""Problems reported at a time; a model that fixes ten gets the next."""

_GLIMPSE = 40
_LISTED = 20
_HINTS = 3  # wrong names that are compared with the right ones
_LONGEST_COMPARED = 64
_MOST_COMPARED = 500
_MOST_BRANCHES = 200  # alternatives that are looked at for what they want
_LONGEST_PATH = 200
_LONGEST_MESSAGE = 1_000
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
    lines = [str(problem) for problem in problems]
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


def problems_of(errors: Sequence[Any], schema: Any) -> tuple[Problem, ...]:
    """Return the validator's errors as problems, without repeats, at most `MAX_PROBLEMS` and a count of the rest.

    Args:
        errors: `jsonschema_rs.ValidationError` objects.
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


def _count(error: Any) -> int:
    """Return the number of problems in an error."""
    if error.kind.name in _PROPERTIES:
        return len(error.kind.value)
    return 1


def _explain(error: Any, schema: Any) -> list[Problem]:
    """Return an error as problems whose messages are of bounded length, for any schema and value."""
    return [
        Problem(path=shortened(one.path, _LONGEST_PATH), message=shortened(one.message, _LONGEST_MESSAGE))
        for one in _explained(error, schema)
    ]


def _explained(error: Any, schema: Any) -> list[Problem]:
    keyword: str = error.kind.name
    if keyword in _PROPERTIES:
        return _unknown_properties(error, schema)
    if keyword in {"anyOf", "oneOf"}:
        return _no_alternative(error, schema)
    return [Problem(path=path_text(error.instance_path), message=_sentence(error, keyword))]


def _sentence(error: Any, keyword: str) -> str:
    limit = error.kind.value
    if keyword == "required":
        return f"missing required property {_quoted(limit)}"
    if keyword == "type":
        return f"expected {' or '.join(limit)}, got {_shown(error)}"
    if keyword == "enum":
        options = ", ".join(_glimpse(option) for option in limit[:_LISTED])
        if len(limit) > _LISTED:
            more = f", ... ({len(limit)} in all)"
        else:
            more = ""
        return f"must be one of {options}{more}; got {_shown(error)}"
    if keyword == "const":
        return f"must be {_glimpse(limit)}; got {_shown(error)}"
    if keyword in _LIMITS:
        if isinstance(error.instance, (int, float, str)):
            shown = f", got {_shown(error)}"
        else:
            shown = ""
        return _LIMITS[keyword].format(limit=_glimpse(limit)) + shown
    if keyword == "falseSchema":
        closed = error.schema_path and error.schema_path[-1] in _PROPERTIES
        if closed:
            return "takes no properties"
        return "is not allowed here"
    return f"does not satisfy {keyword!r} of the schema"


def _unknown_properties(error: Any, schema: Any) -> list[Problem]:
    owner = _owner(error, schema)
    allowed: list[str] | None = None
    if isinstance(owner, dict):
        declared = cast("dict[str, Any]", owner).get("properties")
        if isinstance(declared, dict):
            allowed = sorted(cast("dict[str, Any]", declared))
        else:
            allowed = []
    path = path_text(error.instance_path)
    names = cast("list[str]", error.kind.value)
    said = [_unknown(name, allowed, hints=number < _HINTS) for number, name in enumerate(names[: MAX_PROBLEMS + 1])]
    # of those that are not shown, only the number counts
    said += [f"unknown property number {number}" for number in range(len(said), len(names))]
    return [Problem(path=path, message=text) for text in said]


def _unknown(name: str, allowed: list[str] | None, *, hints: bool) -> str:
    text = f"{_quoted(name)} is not a known property"
    if not allowed:
        if allowed is None:
            return text
        return f"{text}; none are allowed here"
    near = nearest(name, allowed, n=1) if hints else []
    hint = f"; did you mean {_quoted(near[0])}?" if near else ""
    more = ", ..." if len(allowed) > _LISTED else ""
    return f"{text}{hint} (allowed: {', '.join(shortened(one, _GLIMPSE) for one in allowed[:_LISTED])}{more})"


def nearest(name: str, known: Iterable[str], *, n: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return the known names most similar to an unknown one, the best first.

    Comparing is quadratic in a name's length: names over 64 characters, and those beyond 500, are skipped.
    """
    import difflib  # only a wrong name needs it

    if len(name) > _LONGEST_COMPARED:
        return []
    comparable = (one for one in known if len(one) <= _LONGEST_COMPARED)
    return difflib.get_close_matches(name, islice(comparable, _MOST_COMPARED), n=n, cutoff=cutoff)


def _no_alternative(error: Any, schema: Any) -> list[Problem]:
    """Explain the one alternative that types and constants identify as intended; else all of them."""
    path = path_text(error.instance_path)
    branches: list[list[Any]] = getattr(error.kind, "context", [])
    if not any(branches) or not all(branches):
        return [Problem(path=path, message="fits more than one of the alternatives, exactly one is wanted")]
    depth = len(error.instance_path)
    fitting = meant_branches(error)
    if len(fitting) == 1:
        return [problem for found in fitting[0] for problem in _explain(found, schema)]
    if fitting:
        options = [describe(p for found in branch for p in _explain(found, schema)) for branch in fitting[:3]]
        text = "; or ".join(option.replace("\n", " ") for option in dict.fromkeys(options))
        return [Problem(path=path, message=f"fits none of {len(branches)} alternatives: {text}")]
    wanted = list(dict.fromkeys(_wanted(branch, depth) for branch in branches[:_MOST_BRANCHES]))
    if max(len(wanted), len(branches) - _MOST_BRANCHES) > _LISTED:
        more = f" or ... ({len(branches)} in all)"
    else:
        more = ""
    return [Problem(path=path, message=f"expected {' or '.join(wanted[:_LISTED])}{more}, got {_shown(error)}")]


def meant_branches(error: Any) -> list[list[Any]]:
    """Return the errors of each alternative that takes a value of this kind, so that it may be the intended one."""
    depth = len(error.instance_path)
    branches: list[list[Any]] = getattr(error.kind, "context", [])
    return [branch for branch in branches if not any(_is_other_kind(found, depth) for found in branch)]


def _is_other_kind(error: Any, depth: int) -> bool:
    """Return whether an error rules an alternative out: another type, or another constant."""
    at_value = len(error.instance_path) == depth and error.kind.name in {"type", "enum", "const"}
    return at_value or (len(error.instance_path) == depth + 1 and error.kind.name == "const")


def _wanted(branch: list[Any], depth: int) -> str:
    error = next(found for found in branch if _is_other_kind(found, depth))
    limit = error.kind.value
    if error.kind.name == "type":
        return " or ".join(limit)
    if error.kind.name == "enum":
        return "one of " + ", ".join(_glimpse(option) for option in limit[:_LISTED])
    if len(error.instance_path) > depth:
        where = f"{path_text(error.instance_path[depth:])} = "
    else:
        where = ""
    return where + _glimpse(limit)


def _owner(error: Any, schema: Any) -> Any:
    """Return the subschema that holds an error's keyword, or None when it cannot be found."""
    node: Any = schema
    base = (error.absolute_keyword_location or "").partition("#")[0]
    if base and not (isinstance(schema, Mapping) and node.get("$id") == base):
        return None  # paths inside an embedded schema with an `$id` start there
    try:
        for part in error.schema_path[:-1]:
            node = node[part]
    except (LookupError, TypeError):  # pragma: no cover  # no such path is known; a hint is not worth a crash
        return None
    return node


def _shown(error: Any) -> str:
    """Return the type of the offending value and, for scalars that are no secret, a glimpse of it."""
    value = error.instance
    name = _type_name(value)
    if value is None or isinstance(value, (dict, list)):
        return name
    if any(isinstance(part, str) and re.search(_SENSITIVE, part) for part in error.instance_path):
        return name
    return f"{name} {_glimpse(value)}"


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names: dict[type, str] = {str: "string", int: "integer", dict: "object", list: "array"}
    return next((name for kind, name in names.items() if isinstance(value, kind)), "number")


def _glimpse(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value)
    text = _json(value)
    if len(text) <= _GLIMPSE:
        return text
    return f"{text[: _GLIMPSE - 3]}..."


def _quoted(text: str) -> str:
    if len(text) <= _GLIMPSE:
        short = text
    else:
        short = f"{text[: _GLIMPSE - 3]}..."
    return _json(short)


def _json(value: Any) -> str:
    import json  # only bad input needs it

    return json.dumps(value, ensure_ascii=False, default=str)
