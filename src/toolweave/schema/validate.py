"""A compiled JSON Schema that says what is wrong with a value.

No I/O: a `$ref` to the network or to a file is refused, never fetched (DESIGN decision 6). Formats are
notes, as JSON Schema 2020-12 has them by default, and unknown keywords never block (requirement C10).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from toolweave.errors import SchemaError
from toolweave.schema.limits import MAX_INSTANCE_DEPTH, check_schema, measure
from toolweave.schema.problems import Problem, describe, problems_of

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["Problem", "Validator", "describe"]

_log = logging.getLogger("toolweave.schema")

_DIALECTS = {
    "json-schema.org/draft/2020-12/schema": "Draft202012Validator",
    "json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "json-schema.org/draft-07/schema": "Draft7Validator",
    "json-schema.org/draft-06/schema": "Draft6Validator",
    "json-schema.org/draft-04/schema": "Draft4Validator",
}

_SCALARS = frozenset({str, int, float, bool, type(None)})

_ALL_ERRORS_UP_TO = 5_000
"""Values inside a value of which every error is collected; of a larger one only the first."""


class Validator:
    """A JSON Schema, compiled once and asked often.

    The dialect is the schema's `$schema`; 2020-12 when it has none or an unknown one, the latter
    with a warning in the log.

    Raises:
        SchemaError: The schema is no valid schema, points outside itself, or passes a bound of
            `toolweave.schema.limits`. Whoever calls decides whether to go on without validation
            (requirements R45, R62).
    """

    __slots__ = ("_compiled", "schema")

    def __init__(self, schema: Mapping[str, Any] | bool) -> None:
        self.schema = schema
        self._compiled = _compile(schema)

    def is_valid(self, instance: Any) -> bool:
        """Tell whether a JSON value fits; what is no JSON value does not."""
        if type(instance) is not dict or not _SCALARS.issuperset(map(type, instance.values())):  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
            instance = _plain(instance)
            if measure(instance) < 0:
                return False
        try:
            return self._compiled.is_valid(instance)
        except ValueError:  # no JSON value
            return False

    def problems(self, instance: Any) -> tuple[Problem, ...]:
        """Return what is wrong with a value, in words a model can act on; empty when it fits."""
        instance = _plain(instance)
        size = measure(instance)
        if size < 0:
            return (Problem(path="", message=f"is nested deeper than {MAX_INSTANCE_DEPTH} levels"),)
        try:
            if self._compiled.is_valid(instance):
                return ()
            return problems_of(self._errors(instance, size), self.schema)
        except ValueError as exc:
            return (Problem(path="", message=f"is not a JSON value: {exc}"),)

    def _errors(self, instance: Any, size: int) -> list[jsonschema_rs.ValidationError]:
        if size <= _ALL_ERRORS_UP_TO:
            return list(self._compiled.iter_errors(instance))
        from jsonschema_rs import ValidationError  # see _compile

        try:
            self._compiled.validate(instance)
        except ValidationError as error:
            return [error]
        raise AssertionError("is_valid and validate disagree")

    def __repr__(self) -> str:
        return f"Validator({self.schema!r})"


def _compile(schema: Mapping[str, Any] | bool) -> jsonschema_rs.Validator:
    import jsonschema_rs  # loading its 10 MB takes 20 ms, and few runs validate

    if isinstance(schema, bool):
        return jsonschema_rs.Draft202012Validator(schema)
    if not isinstance(schema, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # strangers send anything
        raise SchemaError(f"a schema is an object or a boolean, not {type(schema).__name__}")
    draft = getattr(jsonschema_rs, _dialect(schema))
    body = {key: value for key, value in schema.items() if key != "$schema"}
    check_schema(body)
    refused: list[str] = []

    def refuse(uri: str) -> Any:
        refused.append(uri)
        raise LookupError(uri)

    try:
        return draft(body, retriever=refuse, validate_formats=False)
    except jsonschema_rs.ValidationError as exc:
        if refused:
            raise SchemaError(f"$ref {refused[0]!r} points outside the schema; it is never fetched") from None
        pointer = "".join(f"/{part}" for part in exc.instance_path)
        raise SchemaError(f"not a valid schema: {_cut(exc.message)}", pointer=pointer) from None
    except ValueError as exc:  # no JSON value
        raise SchemaError(f"not a valid schema: {_cut(str(exc))}") from None


def _plain(instance: Any) -> Any:
    return dict(cast("Mapping[str, Any]", instance)) if isinstance(instance, Mapping) else instance


def _dialect(schema: Mapping[str, Any]) -> str:
    declared = schema.get("$schema")
    if declared is None:
        return "Draft202012Validator"
    known = _DIALECTS.get(str(declared).rstrip("#").partition("://")[2])
    if known is None:
        _log.warning("unknown JSON Schema dialect %r; the schema is read as 2020-12", declared)
    return known or "Draft202012Validator"


def _cut(text: str) -> str:
    first = text.partition("\n")[0]
    return first if len(first) <= 200 else f"{first[:197]}..."
