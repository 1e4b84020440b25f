"""Validation against compiled JSON Schemas, with problems in words.

No I/O: a `$ref` to the network or to a file is refused, never fetched. Formats are
annotations, the default of JSON Schema 2020-12, and unknown keywords never block.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast

from toolweave._json_types import JsonObject, without_members
from toolweave.errors import SchemaError, ToolError
from toolweave.schema._explaining import is_explainable
from toolweave.schema._json_values import JsonValue, SchemaNode
from toolweave.schema._repair import has_nullable, repaired, with_null_types, without
from toolweave.schema._unevaluated import NEVER, Repeats, repeats_of
from toolweave.schema.limits import (
    MAX_INSTANCE_DEPTH,
    MAX_STEPS,
    SCALARS,
    check_schema,
    has_alternatives,
    max_steps_per_value,
    measure,
)
from toolweave.schema.normalize import KEYWORDS
from toolweave.schema.problems import Problem, problems_of

if TYPE_CHECKING:
    import jsonschema_rs
    from jsonschema_rs import ValidationError

__all__ = ["UsableValidators", "Validator", "load_validator", "usable_validator"]

_log = logging.getLogger("toolweave.schema")

_DIALECTS = {
    "json-schema.org/draft/2020-12/schema": "Draft202012Validator",
    "json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "json-schema.org/draft-07/schema": "Draft7Validator",
    "json-schema.org/draft-06/schema": "Draft6Validator",
    "json-schema.org/draft-04/schema": "Draft4Validator",
}

_ALL_ERRORS_UP_TO = 5_000
"""Nested values up to which all errors of an instance are collected; of a larger one only the first."""

_MAX_BACKTRACKING = 10_000
"""Backtracking steps of one pattern on one text; a text that needs more does not match."""

_MAX_VALIDATORS = 10_000
_TOO_MUCH_WORK = (
    f"is too large to be checked against this schema: it takes more than {MAX_STEPS:,} comparisons of a value with "
    "a subschema"
)
_MAX_DROPPED = 32
"""Keywords that are dropped, one after the other, from a schema that the library refuses."""
_NOT_EXPLAINED = "does not fit the schema; the two are too large together to find out where"


class Validator:
    """A JSON Schema, compiled once for many validations.

    The dialect is the schema's `$schema`; 2020-12 when it has none or an unknown one, the latter
    with a warning in the log. Where it says `nullable: true`, as OpenAPI 3.0 does, null is valid.

    Args:
        schema: The schema.
        formats: Check `format`, such as `email`; otherwise it is an annotation (2020-12, 7.2.1).

    Raises:
        SchemaError: The schema is not valid, points outside itself, or passes a bound of
            `toolweave.schema.limits`. The caller decides whether to continue without validation.
    """

    __slots__ = ("_by_value", "_checked", "_compiled", "_repeats", "_steps", "_unchecked", "schema")

    def __init__(self, schema: Mapping[str, Any] | bool, *, formats: bool = False) -> None:
        self.schema: Mapping[str, Any] | bool = schema
        self._by_value: int | None = None
        self._compiled, self._checked, self._steps, self._repeats = _compile(schema, formats)
        # The work of a validation is at most values x steps a value x repetitions. With no repetition the bound on
        # values follows from the schema alone, and a small instance need not even be measured.
        if self._repeats is NEVER:
            self._unchecked = MAX_STEPS // (self._steps + 1) - 1
        else:
            self._unchecked = -1
        """Nested values up to which a validation cannot pass `MAX_STEPS`."""

    @classmethod
    def repaired(cls, schema: Mapping[str, Any]) -> tuple[Validator, tuple[str, ...]]:
        """Return a validator for the readable part of a schema, and its changes as phrases.

        Raises:
            SchemaError: The schema passes a bound, or no part of it can be checked.
        """
        check_schema(dict(schema))
        body, changes = repaired(schema)
        for _ in range(_MAX_DROPPED):
            if not KEYWORDS & body.keys() and "$ref" not in body:
                raise SchemaError("no part of the schema can be checked")
            try:
                return cls(body), changes
            except _BadKeywordError as exc:
                rest = without(body, exc.path)
                if rest is None:
                    raise
                body = rest
                changes = (*changes, f"{exc.pointer} cannot be read and is left out")
        return cls(body), changes

    def is_valid(self, instance: Any) -> bool:
        """Return whether a value fits the schema; a value that is not JSON does not."""
        # A scalar, or an object of few, which nearly all arguments and results are, can be neither deep nor too much
        # work: three cheap checks instead of a walk over it.
        if type(instance) is dict:
            values = instance.values()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        else:
            values = (instance,)
        is_small = len(values) <= self._unchecked  # pyright: ignore[reportUnknownArgumentType]
        if not (is_small and SCALARS.issuperset(map(type, values))):  # pyright: ignore[reportUnknownArgumentType]
            instance = _plain(instance)
            size = measure(instance)
            # Both bounds come before the validator, whose own recursion cannot be interrupted: a schema with nested
            # `anyOf` and a value that fits none of them is exponential.
            if size < 0 or self._is_too_much(instance, size):
                return False
        try:
            return self._compiled.is_valid(instance)
        except ValueError:  # not a JSON value
            return False

    def problems(self, instance: Any) -> tuple[Problem, ...]:
        """Return the problems of a value, in words a model can act on; empty when it fits."""
        instance = _plain(instance)
        size = measure(instance)
        if size < 0:
            return (Problem(path="", message=f"is nested deeper than {MAX_INSTANCE_DEPTH} levels"),)
        if self._is_too_much(instance, size):
            return (Problem(path="", message=_TOO_MUCH_WORK),)
        try:
            # First the cheap question, which stops at the first error. Collecting errors visits every branch of every
            # alternative.
            if self._compiled.is_valid(instance):
                return ()
            few = size <= _ALL_ERRORS_UP_TO
            nested = has_alternatives(self._checked)
            explainable = is_explainable(self._checked, instance) if few or nested else False
            # An error of `anyOf` holds the errors of all its branches, and these those of theirs: the first error may
            # be as large as all of them together.
            if nested and not explainable:
                return (Problem(path="", message=_NOT_EXPLAINED),)
            return problems_of(self._errors(instance, all_of_them=explainable and few), self._checked)
        except ValueError as exc:
            return (Problem(path="", message=f"is not a JSON value: {exc}"),)

    def errors(self, instance: JsonValue) -> list[ValidationError]:
        """Return all errors of a value as the library has them; none where collecting them could take long."""
        size = measure(instance)
        if not 0 <= size <= _ALL_ERRORS_UP_TO or self._is_too_much(instance, size):
            return []
        try:
            if is_explainable(self._checked, instance):
                return self._errors(instance, all_of_them=True)
        except ValueError:  # not a JSON value
            pass
        return []

    def _is_too_much(self, instance: JsonValue, size: int) -> bool:
        if size <= self._unchecked:
            return False
        if self._by_value is None:
            self._by_value = 1
            # Found only for an instance so large that the cheap bound does not hold: it is a walk over the schema with
            # all its references.
            if isinstance(self._checked, dict):
                self._by_value = max_steps_per_value(self._checked, self._steps)
        return (size + 1) * self._by_value * self._repeats.max_checks(instance) > MAX_STEPS

    def _errors(self, instance: JsonValue, *, all_of_them: bool) -> list[ValidationError]:
        if all_of_them:
            return list(self._compiled.iter_errors(instance))
        from jsonschema_rs import ValidationError  # see _compile

        try:
            self._compiled.validate(instance)
        except ValidationError as error:
            return [error]
        raise AssertionError("is_valid and validate disagree")

    def __repr__(self) -> str:
        return f"Validator({self.schema!r})"


def usable_validator(schema: JsonObject | bool) -> Validator | None:
    """Return a validator for the readable part of a schema, or None for a schema that cannot be used at all.

    It is for tools whose servers check their arguments.
    """
    try:
        return Validator(schema)
    except SchemaError:
        return _readable_part(schema)


def _readable_part(schema: JsonObject | bool) -> Validator | None:
    """Return a validator for the readable part of a malformed schema, or None without such a part."""
    if not isinstance(schema, Mapping):
        return None
    try:
        return Validator.repaired(schema)[0]
    except SchemaError:
        return None


class UsableValidators:
    """The validators of schemas that others made, each compiled once; at most 10,000 are kept."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[object, Validator | None]] = {}

    def of(self, schema: JsonObject | bool) -> Validator | None:
        """Return the validator of a schema, as `usable_validator` makes it."""
        # By identity: a listing that is unchanged keeps its schemas, and to compare them would cost more than to check
        # the arguments. The schema itself is kept, so that its id stays its own.
        known, validator = self._made.get(id(schema), (None, None))
        if known is schema:
            return validator
        made = usable_validator(schema)
        if len(self._made) >= _MAX_VALIDATORS:
            self._made.clear()
        self._made[id(schema)] = (schema, made)
        return made


def load_validator() -> None:
    """Load the library that validates, which otherwise happens at the first value that needs it (20 ms, 10 MB).

    Raises:
        OSError: No file descriptor is left.
    """
    import jsonschema_rs  # noqa: F401  # pyright: ignore[reportUnusedImport]  # as in _compile


class _BadKeywordError(SchemaError):
    """One keyword of a schema is malformed.

    Attributes:
        path: Where it is in the schema.
    """

    def __init__(self, message: str, path: list[str | int]) -> None:
        super().__init__(message, pointer="".join(f"/{part}" for part in path))
        self.path = path


def _compile(
    schema: Mapping[str, Any] | bool, formats: bool
) -> tuple[jsonschema_rs.Validator, SchemaNode | bool, int, Repeats]:
    """Compile a schema.

    Also return it as it was compiled, the steps of checking one value against all of it, and how often that is done.
    """
    try:
        import jsonschema_rs  # loading its 10 MB takes 20 ms, and few runs validate
    except OSError as exc:
        # No file descriptor is left, as a rule; the next call tries again.
        raise ToolError(f"arguments cannot be checked: {exc}; close files or connections", retryable=True) from exc
    if isinstance(schema, bool):
        return jsonschema_rs.Draft202012Validator(schema), schema, 1, NEVER
    if not isinstance(schema, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # strangers send anything
        raise SchemaError(f"a schema is an object or a boolean, not {type(schema).__name__}")
    draft = getattr(jsonschema_rs, _dialect(schema))
    # The dialect is chosen here; a `$schema` that the library does not know would make it refuse the schema.
    body = without_members(schema, "$schema")
    # Before it is compiled: compiling follows the references, and it is the schema of a stranger.
    steps = check_schema(body)
    checked = dict(schema)
    if has_nullable(body):
        body = checked = with_null_types(body)
        steps = check_schema(body)
    repeats = repeats_of(body)
    patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=_MAX_BACKTRACKING)
    refused: list[str] = []

    def refuse(uri: str) -> NoReturn:
        # SSRF: a schema from a server must not make us fetch anything. The reference is remembered, since the library
        # reports it as an error of the schema alone.
        refused.append(uri)
        raise LookupError(uri)

    try:
        # ReDoS: patterns come from servers, so their backtracking has a bound.
        compiled = draft(body, retriever=refuse, validate_formats=formats, pattern_options=patterns)
    except jsonschema_rs.ValidationError as exc:
        if refused:
            raise SchemaError(f"$ref {refused[0]!r} points outside the schema; it is never fetched") from None
        raise _BadKeywordError(f"not a valid schema: {_cut(exc.message)}", list(exc.instance_path)) from None
    except ValueError as exc:  # not a JSON value
        raise SchemaError(f"not a valid schema: {_cut(str(exc))}") from None
    return compiled, checked, steps, repeats


def _plain(instance: Any) -> Any:
    if isinstance(instance, Mapping):
        return dict(cast("Mapping[str, Any]", instance))
    return instance


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
    if len(first) <= 200:
        return first
    return f"{first[:197]}..."
