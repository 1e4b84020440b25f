"""Arguments that are nearly right, made to fit a schema: texts that hold JSON, nulls for nothing, values of Python.

Why it is right: nothing is changed unless the schema refuses the value where it stands, and the whole is returned only
if it then fits. A text is read as JSON only where every branch of the schema refuses texts as such, so that no text
that a tool may want is touched; a null is dropped only if the schema refuses nulls there. Everything else stays as it
was given, and stays an error.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import msgspec

from toolweave._json import decode_json
from toolweave._repairs import Repair
from toolweave._text import without_code_block
from toolweave.schema._json_values import JsonValue, SchemaView
from toolweave.schema.problems import branches_with_errors, meant_branches, path_text
from toolweave.schema.validate import Validator, usable_validator

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

__all__ = [
    "ARGUMENT_REPAIRS",
    "MAX_TEXT",
    "NO_OBJECT",
    "NULL_MEMBER",
    "PYTHON_VALUE",
    "TEXT_OF_JSON",
    "Arguments",
    "as_fitted",
    "fitted",
    "fitted_or_same",
    "json_form",
    "json_values",
    "object_meant",
]

Arguments: TypeAlias = Mapping[str, Any]
"""Arguments of a call as a program gives them: JSON, and values of Python that have a form in JSON."""
_INDEX = re.compile(r"\[\d+\]")
_MAX_PLACE = 80
"""Characters of a place in a report."""
_Built: TypeAlias = "str | int | float | bool | list[_Built] | tuple[_Built, ...] | dict[str, _Built] | None"
"""A value that the encoder returns."""
MAX_TEXT = 1_000_000
"""Characters of a text that is read as JSON."""
_MAX_ROUNDS = 4
"""Texts inside of texts are read so deep."""
_MAX_CHANGES = 1_000
_SWITCH = (
    '`"repair_arguments": false`, `create_mcp_server(repair_arguments=False)`, `OpenApiOptions(repair_arguments=False)`'
)
TEXT_OF_JSON = Repair(
    given="a text where the schema accepts no text",
    read_as="the JSON in it",
    limit=f"only if the value fits; {MAX_TEXT:,} characters, {_MAX_ROUNDS} texts inside one another, "
    f"{_MAX_CHANGES:,} changes in one call",
    switch=_SWITCH,
    problem="{} is a text that holds JSON",
)
NULL_MEMBER = Repair(
    given="null for a member that is optional",
    read_as="no member",
    limit="only if the schema refuses null there",
    switch=_SWITCH,
    problem="{} is null and left out",
)
NO_OBJECT = Repair(
    given="`arguments` of a call that are null, an empty list, or JSON as a text or a code block",
    read_as="no arguments; the object in the text",
    limit=f"the text holds an object, in {MAX_TEXT:,} characters; a server of yours always reads those of a prompt so",
    switch=_SWITCH,
    problem="'arguments' is not an object",
)
PYTHON_VALUE = Repair(
    given="a pydantic model, path, date, tuple or dataclass that a program gives",
    read_as="its form in JSON",
    limit="a value without a form in JSON stays an error",
    switch=_SWITCH,
)
ARGUMENT_REPAIRS = (NO_OBJECT, TEXT_OF_JSON, NULL_MEMBER, PYTHON_VALUE)
"""Every repair of arguments."""


def object_meant(given: object) -> Arguments | None:
    """Return the arguments that are meant by a value that is not an object; None if none are."""
    if given in (None, []):
        return {}
    if not isinstance(given, str):
        return None
    found = _decoded([], without_code_block(given))
    if found is None:
        return None
    if isinstance(found.value, dict):
        return found.value
    return None


def fitted(validator: Validator, arguments: Arguments) -> tuple[Arguments, tuple[str, ...]] | None:
    """Return arguments as the schema has them, and the kinds of changes; None if they cannot be made to fit.

    A kind is a phrase with the place of the change. All items of a list are one place, since a caller that sends one of
    them so sends the others so.

    Args:
        validator: The compiled schema, which refuses the arguments as they are.
        arguments: The arguments as they were given; they stay as they are.
    """
    plain: JsonValue = json_values(arguments)
    if not isinstance(plain, dict):
        return None
    changes = 0
    kinds: dict[str, None] = {}
    for _ in range(_MAX_ROUNDS):
        if validator.is_valid(plain):
            return plain, tuple(kinds)
        found = list(_changes(validator, plain))
        changes += len(found)
        if not found or changes > _MAX_CHANGES:
            return None
        for change in found:
            _apply(plain, change)
            kinds[_kind(change)] = None
    if validator.is_valid(plain):
        return plain, tuple(kinds)
    return None


def as_fitted(schema: SchemaView, arguments: Arguments) -> Arguments:
    """Return arguments as they are sent, for rules that read them before; unchanged if no change makes them fit."""
    validator = usable_validator(schema)
    if validator is None:
        return arguments
    return fitted_or_same(validator, arguments)


def fitted_or_same(validator: Validator, arguments: Arguments) -> Arguments:
    """Return arguments as the schema has them; the same object if they fit, or cannot be made to fit."""
    if validator.is_valid(arguments):
        return arguments
    found = fitted(validator, arguments)
    if found is None:
        return arguments
    return found[0]


def json_values(value: object) -> Any:
    """Return a copy of a value of which all parts are JSON, or None if a part has no form in JSON.

    Models of pydantic and paths become what they are in JSON, beside the types that the encoder knows.
    """
    try:
        return _listed(msgspec.to_builtins(value, enc_hook=json_form, str_keys=True))
    except (TypeError, ValueError, RecursionError):
        return None


def _listed(value: _Built) -> JsonValue:
    """Return a copy of a value with lists in place of tuples."""
    if isinstance(value, dict):
        return {name: _listed(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(_listed, value))
    return value


def json_form(value: Any) -> object:
    """Return the form in JSON of a value that the encoder does not know.

    Raises:
        TypeError: It has none.
    """
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", by_alias=True)
    if isinstance(value, os.PathLike):
        return os.fsdecode(cast("os.PathLike[str] | os.PathLike[bytes]", value))
    if isinstance(value, Mapping):
        return dict(cast("Arguments", value))
    raise TypeError(f"a value of the type {type(value).__name__} has no form in JSON")


class _Nothing(enum.Enum):
    """The mark of a member that is left out."""

    NOTHING = enum.auto()


_NOTHING = _Nothing.NOTHING


class _Change(NamedTuple):
    """A place in arguments, and the value that stands there afterwards."""

    path: list[str | int]
    value: JsonValue | _Nothing


def _kind(change: _Change) -> str:
    """Return the phrase for a change in a report."""
    repair = NULL_MEMBER if change.value is _NOTHING else TEXT_OF_JSON
    place = _INDEX.sub("[]", path_text(change.path))
    return repair.problem.format(place[:_MAX_PLACE])


def _changes(validator: Validator, value: JsonValue) -> Iterator[_Change]:
    """Yield the places of a value that can be changed towards the schema, each with the other value, once each."""
    seen: set[str] = set()
    errors = [(error, 0) for error in validator.errors(value)]
    while errors:
        error, level = errors.pop()
        path = list(error.instance_path)
        found = _at(value, path)
        if isinstance(found, (dict, list)):
            # A single alternative may be the intended one, and its own errors name the place. Of several, guessing one
            # would change arguments in a way that nobody asked for.
            meant = meant_branches(error) if level < _MAX_ROUNDS else []
            if len(meant) == 1:
                errors += [(inner, level + 1) for inner in meant[0]]
            continue
        if found is not None and not isinstance(found, str):
            continue
        key = repr(path)
        if key in seen or not _refuses_kind(error, found):
            continue
        change = _change(path, found)
        if change is not None:
            seen.add(key)
            yield change


def _change(path: list[str | int], value: str | None) -> _Change | None:
    """Return the change of a text to the value in it, or of a null member to no member; None if neither is possible."""
    if value is not None:
        return _decoded(path, value)
    if path and isinstance(path[-1], str):
        return _Change(path, _NOTHING)
    return None


def _refuses_kind(error: ValidationError, value: str | None) -> bool:
    """Return whether an error refuses every text, or every null, where this one stands."""
    limit = error.kind.value
    name = error.kind.name
    if name == "type":
        return ("null" if value is None else "string") not in limit
    if name == "enum":
        return not any(isinstance(option, type(value)) for option in limit)
    if name == "const":
        return not isinstance(limit, type(value))
    branches = branches_with_errors(error)
    depth = len(error.instance_path)
    return bool(branches) and all(_one_refuses_kind(branch, value, depth) for branch in branches)


def _one_refuses_kind(errors: list[ValidationError], value: str | None, depth: int) -> bool:
    """Return whether one of the errors of an alternative is about the value itself, and refuses its kind."""
    return any(len(error.instance_path) == depth and _refuses_kind(error, value) for error in errors)


def _decoded(path: list[str | int], text: str) -> _Change | None:
    """Return the change to the value that a text holds as JSON, if that is not a text again."""
    if len(text) > MAX_TEXT:
        return None
    try:
        value = decode_json(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if isinstance(value, str):
        return None
    return _Change(path, value)


def _at(value: JsonValue, path: list[str | int]) -> JsonValue:
    """Return the value at a path that the validator reported, which therefore exists."""
    for part in path:
        if isinstance(value, dict):
            value = value[str(part)]
        elif isinstance(value, list):
            value = value[int(part)]
    return value


def _apply(value: JsonValue, change: _Change) -> None:
    """Make a change to a value in place."""
    owner = _at(value, change.path[:-1])
    part = change.path[-1]
    if isinstance(owner, list) and not isinstance(change.value, _Nothing):
        owner[int(part)] = change.value
    elif isinstance(owner, dict) and isinstance(change.value, _Nothing):
        del owner[str(part)]
    elif isinstance(owner, dict) and not isinstance(change.value, _Nothing):
        owner[str(part)] = change.value
