"""JSON Schemas derived from a Python signature, and JSON objects bound to a call's arguments.

pydantic describes and converts types; this module decides which parameters become properties. Knows no tools.
"""

from __future__ import annotations

import inspect
import json
import logging
import types
import typing
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, cast

from toolweave._json_types import without_members
from toolweave.errors import SchemaError, printable
from toolweave.schema._annotations import (
    EMPTY,
    Annotation,
    Function,
    Parameter,
    SignatureParts,
    annotation_text,
    documentation,
    function_name,
    implementation,
    modern,
    read_signature,
)
from toolweave.schema._docstring import parse_docstring
from toolweave.schema._json_values import SchemaView, listed, members, named
from toolweave.schema._type_loader import TypeLoader
from toolweave.schema.problems import Problem, path_text
from toolweave.schema.validate import Validator

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError
    from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

_log = logging.getLogger("toolweave.schema")
_BARE_LISTS = (list, tuple, set, frozenset)
"""Types of lists that may hold anything, pictures included."""


class Signature:
    """The parameters and the return value of a function as JSON Schemas, derived once by `derive`.

    Attributes:
        name: The function's name.
        description: The docstring without its sections on parameters and returns.
        input_schema: JSON Schema 2020-12 of the arguments object, closed to other properties.
        output_schema: JSON Schema of the returned value; None without an annotation, or with one that says nothing.
        injected: Names of the parameters that the caller fills in and the schema leaves out.
        unbound: True for a function of a class body whose `self` is not bound yet.
        load: Converts the JSON of a returned value back to the annotated type; None without an annotation.
    """

    __slots__ = (
        "_arguments",
        "_returned",
        "_validator",
        "description",
        "injected",
        "input_schema",
        "load",
        "name",
        "output_schema",
        "unbound",
    )

    def __init__(
        self,
        *,
        name: str,
        description: str,
        parts: SignatureParts,
        arguments: tuple[TypeAdapter[dict[str, Any]], dict[str, Any]],
        returned: tuple[TypeAdapter[Any], dict[str, Any]] | None,
        load: TypeLoader | None,
    ) -> None:
        self.name: str = name
        self.description: str = description
        self.injected: tuple[str, ...] = parts.injected
        self.unbound: bool = parts.unbound
        self.input_schema: dict[str, Any]
        self.output_schema: dict[str, Any] | None
        self._arguments, self.input_schema = arguments
        if returned is None:
            self._returned = self.output_schema = None
        else:
            self._returned, self.output_schema = returned
        self.load: TypeLoader | None = load
        self._validator: Validator | None = None

    def bind(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Problem, ...]]:
        """Return the call's keyword arguments, converted to the annotated types, and the validation problems.

        The JSON Schema decides what is accepted, so that a local tool and a server's behave alike;
        pydantic converts and runs the validators the annotations carry.
        """
        validator = self._validator
        if validator is None:
            # Made with the first call: most tools of a large registry are listed and never called.
            validator = self._validator = Validator(self.input_schema)
        if not validator.is_valid(arguments):
            return {}, validator.problems(arguments)
        return self.convert(arguments)

    def convert(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Problem, ...]]:
        """Do the same as `bind` for arguments that fit the schema."""
        try:
            # The method of the adapter itself passes on a dozen options that are not given here.
            return self._arguments.validator.validate_python(arguments), ()
        # pydantic's error is a ValueError; its class is not named here, as its import is slow.
        except ValueError as exc:
            return {}, validation_problems(cast("ValidationError", exc))

    def dump(self, value: Any) -> Any:
        """Convert a returned value to JSON, by the return annotation when `output_schema` was derived from it."""
        if self._returned is None:
            return value
        return self._returned.serializer.to_python(value, mode="json", by_alias=True, warnings=False)


class MappingSignature(Signature):
    """The signature of a function that takes all arguments as one mapping, described by a given schema."""

    __slots__ = ("_parameter",)

    def __init__(
        self,
        function: Function,
        input_schema: Mapping[str, Any],
        *,
        injected: type | None = None,
        opaque: tuple[type, ...] = (),
    ) -> None:
        self.name = function_name(function)
        self.description = parse_docstring(documentation(function)).description
        parts = read_signature(function, injected=injected)
        if len(parts.parameters) != 1:
            raise SchemaError(
                f"function {self.name!r} has {len(parts.parameters)} parameters; beside a schema that is given it "
                "takes one, the arguments as a mapping"
            )
        self._parameter = parts.parameters[0].name
        is_property = self._parameter in named(input_schema, "properties")
        if is_property and not _is_mapping(parts.parameters[0]):
            raise SchemaError(
                f"function {self.name!r} has a parameter {self._parameter!r}, which is a property of its schema; "
                "beside a schema that is given it takes all arguments as one mapping: name it `arguments`, or annotate "
                "it as a dict"
            )
        self.injected = parts.injected
        self.unbound = parts.unbound
        self.input_schema = dict(input_schema)
        self.output_schema = None
        self._returned = None
        self.load = _load(parts.returns, opaque)
        self._validator = None

    def convert(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Problem, ...]]:
        """Return the one keyword argument."""
        return {self._parameter: dict(arguments)}, ()


def _is_mapping(parameter: Parameter) -> bool:
    """Return whether a parameter is annotated as the mapping of all arguments."""
    annotation = parameter.annotation
    if typing.get_origin(annotation) is Annotated:
        annotation = typing.get_args(annotation)[0]
    kind = typing.get_origin(annotation) or annotation
    return isinstance(kind, type) and (typing.is_typeddict(kind) or issubclass(kind, Mapping))


def derive(function: Function, *, injected: type | None = None, opaque: tuple[type, ...] = ()) -> Signature:
    """Derive the signature of a function.

    Args:
        function: A function, method, `functools.partial` or object with `__call__`, plain or async.
        injected: A type; parameters annotated with it are left out of the schema.
        opaque: Types of content: a return type that has one of them has no output schema.

    Raises:
        SchemaError: Naming the function and the parameter that cannot be described.
    """
    name = function_name(function)
    target = implementation(function)
    # Refused when the tool is defined: a generator would otherwise be returned as the result, unread.
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise SchemaError(f"function {name!r} is a generator; a tool returns one value")
    parts = read_signature(function, injected=injected)
    docstring = parse_docstring(documentation(function))
    return Signature(
        name=name,
        description=docstring.description,
        parts=parts,
        arguments=_arguments_adapter(name, parts.parameters, docstring.parameters),
        returned=_returned_adapter(name, parts.returns, opaque),
        load=_load(parts.returns, opaque),
    )


def schema_of(kind: Annotation, *, serialization: bool = False, what: str = "the type") -> dict[str, Any]:
    """Return the JSON Schema of a type: closed objects at every level, no titles on properties.

    Args:
        kind: A pydantic model, dataclass, TypedDict or any other annotation pydantic understands.
        serialization: Describe the serialized output instead of the accepted input.
        what: The name of the type in error messages.

    Raises:
        SchemaError: The type has no JSON form.
    """
    return _json_schema(adapter_of(kind, what), "serialization" if serialization else "validation", what)


def _arguments_adapter(
    name: str, parameters: tuple[Parameter, ...], descriptions: Mapping[str, str]
) -> tuple[TypeAdapter[dict[str, Any]], dict[str, Any]]:
    from pydantic import ConfigDict  # 40 ms; a signature is derived when a tool is defined, not on import
    from pydantic.errors import PydanticUserError
    from typing_extensions import TypedDict

    fields = {p.name: _field(p, descriptions.get(p.name)) for p in parameters}
    shape: Any = TypedDict(name, fields)  # pyright: ignore[reportArgumentType, reportGeneralTypeIssues]
    # A model that mistypes an optional argument gets an error; otherwise the tool would run without it.
    shape.__pydantic_config__ = ConfigDict(extra="forbid")
    try:
        adapter = adapter_of(shape, f"function {name!r}")
        return adapter, _json_schema(adapter, "validation")
    except (PydanticUserError, SchemaError):
        for parameter in parameters:  # name the one at fault
            schema_of(_constrained(parameter), what=f"function {name!r}: parameter {parameter.name!r}")
        raise


def _constrained(parameter: Parameter) -> Annotation:
    """Return the annotation of a parameter with the constraints of its default, as in `text: str = Field(...)`."""
    from pydantic.fields import FieldInfo

    if isinstance(parameter.default, FieldInfo):
        return Annotated[parameter.annotation, parameter.default]
    return parameter.annotation


def _field(parameter: Parameter, description: str | None) -> Annotation:
    """Return the TypedDict field of a parameter, with its default and its best description."""
    from pydantic import Field
    from pydantic.fields import FieldInfo

    default = parameter.default
    text = annotation_text(parameter.annotation)
    annotation = _constrained(parameter)
    if isinstance(default, FieldInfo):
        required = default.is_required()
        text = text or default.description
    else:
        required = default is EMPTY
        if not required:
            annotation = Annotated[annotation, Field(default=default)]
    text = text or description
    if text:
        annotation = Annotated[annotation, Field(description=text)]
    if required:
        return typing.Required[annotation]
    return typing.NotRequired[annotation]


def _returned_adapter(
    name: str, returns: Annotation, opaque: tuple[type, ...]
) -> tuple[TypeAdapter[Any], dict[str, Any]] | None:
    """Return the adapter and the schema of a return type; None without information, or without a JSON form.

    Raises:
        SchemaError: A constraint of the return type cannot be checked.
    """
    if _is_uninformative(returns, opaque):
        return None
    try:
        adapter = adapter_of(returns, f"function {name!r}: the return type")
        schema = _json_schema(adapter, "serialization")
    except _ConstraintError:
        # A type without a JSON form has no output schema. A constraint was written to be checked.
        raise
    except SchemaError as exc:
        _log.debug("no output schema: %s", exc)
        return None
    if not schema.keys() - {"title", "description"}:
        return None
    if "type" not in schema and _describes_objects(schema, schema.get("$defs", {})):
        schema["type"] = "object"
    return adapter, schema


def _describes_objects(schema: SchemaView, definitions: SchemaView) -> bool:
    """Return whether all alternatives of a schema are objects; revisions before 2026-07-28 need that at its root."""
    if "$ref" in schema:
        schema = named(definitions, str(schema["$ref"]).removeprefix("#/$defs/"))
    alternatives = listed(schema, "anyOf") or listed(schema, "oneOf")
    if alternatives:
        return all(_describes_objects(members(one), definitions) for one in alternatives)
    return schema.get("type") == "object"


def _load(returns: Annotation, opaque: tuple[type, ...]) -> TypeLoader | None:
    """Return a converter from JSON to a return type; None for one without information, such as `Any`."""
    if _is_uninformative(returns, opaque):
        return None
    return TypeLoader(lambda: adapter_of(returns, "the return type"))


def _is_uninformative(returns: Annotation, opaque: tuple[type, ...]) -> bool:
    return _is_anything(returns) or _may_be_content(returns, opaque)


def _is_anything(annotation: Annotation) -> bool:
    return any(annotation is one for one in (EMPTY, Any, object))


def _may_be_content(returns: Annotation, opaque: tuple[type, ...]) -> bool:
    """Return whether a return type is content, has it among its alternatives, or is a list that may hold some."""
    if isinstance(returns, type) and typing.get_origin(returns) is None:
        return issubclass(returns, opaque) or returns in _BARE_LISTS
    origin = typing.get_origin(returns)
    arguments = typing.get_args(returns)
    if origin in {Annotated, typing.Union, types.UnionType}:
        return any(_may_be_content(one, opaque) for one in arguments)
    if not isinstance(origin, type) or issubclass(origin, Mapping):
        return False
    if not issubclass(origin, Iterable):
        return False
    items = [one for one in arguments if one is not ...]
    return any(_is_uninformative(one, opaque) for one in items)


class _ConstraintError(SchemaError):
    """Raised for a constraint of a type that pydantic cannot check, such as a pattern with look-around."""


def adapter_of(kind: Annotation, what: str = "the type") -> TypeAdapter[Any]:
    """Return the pydantic adapter of a type.

    Raises:
        SchemaError: The type has no JSON form, or a constraint that pydantic cannot check.
    """
    import pydantic_core
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        return TypeAdapter(modern(kind))
    except (PydanticUserError, NameError, TypeError) as exc:
        raise SchemaError(f"{what} has no JSON form: {str(exc).partition(chr(10))[0]}") from None
    except pydantic_core.SchemaError as exc:
        # The first lines name the validators around the one at fault. The last line is the reason.
        reason = str(exc).strip().rpartition("\n")[2].strip().removeprefix("error: ")
        raise _ConstraintError(
            f"{what} has a constraint that pydantic cannot check: {printable(reason)}; change the pattern or the "
            "bound, or check the value in the function"
        ) from None


def _json_schema(
    adapter: TypeAdapter[Any], mode: typing.Literal["validation", "serialization"], what: str = "the type"
) -> dict[str, Any]:
    from pydantic.errors import PydanticUserError

    try:
        schema = adapter.json_schema(mode=mode, schema_generator=_generator())
    except (PydanticUserError, NameError) as exc:
        raise SchemaError(f"{what} has no JSON form: {str(exc).partition(chr(10))[0]}") from None
    return _root_inlined(schema)


def _root_inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Inline a root `$ref`, as pydantic generates it for a recursive model."""
    definitions = schema.pop("$defs", {})
    target = definitions.get(str(schema.get("$ref", "")).removeprefix("#/$defs/"), schema)
    if definitions:
        return {**target, "$defs": definitions}
    return schema


@cache
def _generator() -> type[GenerateJsonSchema]:
    from pydantic.json_schema import GenerateJsonSchema

    class ClosedObjects(GenerateJsonSchema):
        """Every object whose properties are known refuses others, unless its model says `extra="allow"`."""

        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

        def default_schema(self, schema: Any) -> JsonSchemaValue:
            """Return the schema without a default that JSON cannot express; the field stays optional.

            A result that holds such a number has null in its place, so its schema allows null.
            """
            made = super().default_schema(schema)
            if _is_json(made.get("default")):
                return made
            without = without_members(made, "default")
            if self.mode == "serialization":
                return {"anyOf": [without, {"type": "null"}]}
            return without

        def model_schema(self, schema: Any) -> JsonSchemaValue:
            return _closed(super().model_schema(schema))

        def dataclass_schema(self, schema: Any) -> JsonSchemaValue:
            return _closed(super().dataclass_schema(schema))

        def typed_dict_schema(self, schema: Any) -> JsonSchemaValue:
            return _closed(super().typed_dict_schema(schema))

    return ClosedObjects


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type") == "object":
        schema.setdefault("properties", {})
        schema.setdefault("additionalProperties", False)
    return schema


def validation_problems(exc: ValidationError) -> tuple[Problem, ...]:
    """Convert a pydantic `ValidationError` to problems, without the offending values."""
    errors = exc.errors(include_input=False, include_url=False, include_context=False)
    return tuple(Problem(path=path_text(error["loc"]), message=error["msg"]) for error in errors)
