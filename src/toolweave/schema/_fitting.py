"""Arguments that are nearly right, made to fit a schema: texts that hold JSON, nulls for nothing, values of Python.

Why it is right: nothing is changed unless the schema refuses the value where it stands, and the whole is returned only
if it then fits. A text is read as JSON only where every branch of the schema refuses texts as such, so that no text
that a tool may want is touched; a null is dropped only if the schema refuses nulls there. Everything else stays as it
was given, and stays an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from toolweave._json import decode_json
from toolweave._repairs import Repair
from toolweave.errors import SchemaError
from toolweave.schema._problems import meant_branches, path_text
from toolweave.schema._validate import Validator

MAX_TEXT = 1_000_000
"""Characters of a text that is read as JSON."""
_MAX_ROUNDS = 4
"""Texts inside of texts are read so deep."""
_MAX_CHANGES = 1_000
_SWITCH = '`"repair_arguments": false`, `create_mcp_server(repair_arguments=False)`'
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
PYTHON_VALUE = Repair(
    given="a pydantic model, path, date, tuple or dataclass that a program gives",
    read_as="its form in JSON",
    limit="a value without a form in JSON stays an error",
    switch=_SWITCH,
)
ARGUMENT_REPAIRS = (TEXT_OF_JSON, NULL_MEMBER, PYTHON_VALUE)
"""Every repair of arguments."""


def fitted(validator: Validator, arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, ...]] | None:
    """Return arguments as the schema has them, and the changes as phrases; None if they cannot be made to fit.

    Args:
        validator: The compiled schema, which refuses the arguments as they are.
        arguments: The arguments as they were given; they stay as they are.
    """
    plain = json_values(arguments)
    if plain is None:
        return None
    changes: list[str] = []
    for _ in range(_MAX_ROUNDS):
        if validator.is_valid(plain):
            return plain, tuple(changes)
        found = list(_changes(validator, plain))
        if not found or len(changes) + len(found) > _MAX_CHANGES:
            return None
        for path, value in found:
            _put(plain, path, value)
            shown = path_text(path)
            repair = NULL_MEMBER if value is _NOTHING else TEXT_OF_JSON
            changes.append(repair.problem.format(shown))
    if validator.is_valid(plain):
        return (plain, tuple(changes))
    return None


def as_fitted(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return arguments as they are sent, for rules that read them before; unchanged if no change makes them fit."""
    try:
        validator = Validator(schema)
    except SchemaError:
        return arguments
    return fitted_or_same(validator, arguments)


def fitted_or_same(validator: Validator, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return arguments as the schema has them; the same object if they fit, or cannot be made to fit."""
    if validator.is_valid(arguments):
        return arguments
    found = fitted(validator, arguments)
    if found is None:
        return arguments
    return found[0]


def json_values(value: Any) -> Any:
    """Return a copy of a value of which all parts are JSON, or None if a part has no form in JSON.

    Models of pydantic and paths become what they are in JSON, beside the types that the encoder knows.
    """
    try:
        return _listed(msgspec.to_builtins(value, enc_hook=json_form, str_keys=True))
    except (TypeError, ValueError, RecursionError):
        return None


def _listed(value: Any) -> Any:
    """Return a copy of a value with lists in place of tuples."""
    if isinstance(value, dict):
        return {name: _listed(one) for name, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_listed(one) for one in cast("list[Any]", value)]
    return value


def json_form(value: Any) -> Any:
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
        return dict(cast("Mapping[str, Any]", value))
    raise TypeError(f"a value of the type {type(value).__name__} has no form in JSON")


_NOTHING: Any = msgspec.UNSET


def _changes(validator: Validator, value: Any) -> Iterator[tuple[list[str | int], Any]]:
    """Yield the places of a value that can be changed towards the schema, each with the other value, once each."""
    seen: set[str] = set()
    errors = [(error, 0) for error in validator.errors(value)]
    while errors:
        error, level = errors.pop()
        path: list[str | int] = list(error.instance_path)
        found = _at(value, path)
        if isinstance(found, (dict, list)):
            meant = meant_branches(error) if level < _MAX_ROUNDS else []
            if len(meant) == 1:  # of several alternatives, none is guessed
                errors += [(inner, level + 1) for inner in meant[0]]
            continue
        is_candidate = found is None or isinstance(found, str)
        if not is_candidate or repr(path) in seen or not _refuses_kind(error, found):
            continue
        if isinstance(found, str):
            changed = _decoded(found)
        else:
            changed = _without(value, path)
        if changed is not None:
            seen.add(repr(path))
            yield path, changed[0]


def _refuses_kind(error: Any, value: str | None) -> bool:
    """Return whether an error refuses every text, or every null, where this one stands."""
    limit = error.kind.value
    name = error.kind.name
    if name == "type":
        return ("null" if value is None else "string") not in limit
    if name == "enum":
        return not any(isinstance(option, type(value)) for option in limit)
    if name == "const":
        return not isinstance(limit, type(value))
    branches: list[list[Any]] = getattr(error.kind, "context", [])
    depth = len(error.instance_path)
    return bool(branches) and all(
        any(len(inner.instance_path) == depth and _refuses_kind(inner, value) for inner in branch)
        for branch in branches
    )


def _decoded(text: str) -> tuple[Any] | None:
    """Return the value that a text holds as JSON, if it is anything but a text."""
    if len(text) > MAX_TEXT:
        return None
    try:
        value = decode_json(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if isinstance(value, str):
        return None
    return (value,)


def _without(value: Any, path: list[str | int]) -> tuple[Any] | None:
    """Return the mark of a member to leave out, if the path names a member of an object and it is null."""
    is_member = bool(path) and isinstance(path[-1], str) and _at(value, path) is None
    if is_member:
        return (_NOTHING,)
    return None


def _at(value: Any, path: list[str | int]) -> Any:
    for part in path:
        value = value[part]
    return value


def _put(value: Any, path: list[str | int], other: Any) -> None:
    owner = _at(value, path[:-1])
    if other is _NOTHING:
        del owner[path[-1]]
    else:
        owner[path[-1]] = other
