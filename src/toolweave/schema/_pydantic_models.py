"""Conversion of a JSON Schema to a pydantic model, for callers that want types instead of dictionaries.

A convenience beside the schema, which stays authoritative: a keyword that pydantic cannot express accepts any value and
is logged, and no function raises for an odd schema.
"""

from __future__ import annotations

import keyword
import logging
import re
import typing
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from toolweave._json_types import as_number, without_members
from toolweave.errors import SchemaError, printable
from toolweave.schema._annotations import Annotation
from toolweave.schema._json_values import JsonValue, SchemaNode, SchemaView, listed, members, named, text, texts
from toolweave.schema._type_loader import TypeLoader
from toolweave.schema.limits import check_schema, local_target

if TYPE_CHECKING:
    from pydantic import BaseModel, TypeAdapter
    from pydantic.fields import FieldInfo

_log = logging.getLogger("toolweave.schema")


_NUMERIC = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
}
_SIZES = {"minLength": "min_length", "maxLength": "max_length", "minItems": "min_length", "maxItems": "max_length"}

_NOT_CHECKED = frozenset(
    {
        *("not", "if", "then", "else", "dependencies", "dependentRequired", "dependentSchemas", "propertyNames"),
        *("patternProperties", "minProperties", "maxProperties", "unevaluatedProperties", "contains", "minContains"),
        *("maxContains", "uniqueItems", "additionalItems", "unevaluatedItems", "$dynamicRef", "$recursiveRef"),
    }
)
"""Restricting keywords that a model cannot express; they are logged. Unknown keywords are ignored."""

_CHOICES = ("$ref", "enum", "const", "anyOf", "oneOf", "allOf")
_SHAPE = ("type", "properties", "items", *_CHOICES)
_TELLING = ("properties", "items", "$ref", "anyOf", "oneOf", "allOf")
"""Keywords of a root schema that a pydantic type can express beyond plain JSON values."""
_SCALARS: dict[str, Annotation] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}
_MAX_DEPTH = 100


def schema_to_model(schema: Mapping[str, Any], name: str = "Arguments") -> type[BaseModel]:
    """Return a pydantic model for a JSON Schema of an object.

    A property whose name is not valid in Python gets another one, with the original as alias. Dump with
    `by_alias=True, exclude_unset=True` to get the object back. A keyword without an equivalent accepts any value, and
    is logged as a warning.
    """
    from pydantic import BaseModel  # 40 ms, and only this room's conversions need it

    if not isinstance(schema, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # strangers send anything
        return _permissive(name, f"it is a {type(schema).__name__}, not an object")
    root = dict(schema)
    try:
        check_schema(root)
        model = _SchemaReader(root, name).read()
    except Exception as exc:
        # Boundary: odd schemas cost precision, never a tool.
        return _permissive(name, f"{type(exc).__name__}: {str(exc).partition(chr(10))[0]}")
    if isinstance(model, type) and issubclass(model, BaseModel):
        return model
    return _permissive(name, "it does not describe an object")


def loader_for_schema(schema: Mapping[str, Any] | bool, name: str, *, wrap_mark: str, member: str) -> TypeLoader | None:
    """Return a converter from JSON to a schema's types, pydantic models for objects; None for a schema without fields.

    Args:
        schema: The schema.
        name: The name of the model that is made.
        wrap_mark: The keyword of a schema whose objects stand for the value of one member.
        member: The name of that member.
    """
    if isinstance(schema, bool) or schema.keys().isdisjoint(_TELLING):
        return None
    wraps = schema.get(wrap_mark) is True

    root = dict(schema)

    def make() -> TypeAdapter[Any]:
        from pydantic import AfterValidator, TypeAdapter

        try:
            check_schema(root)
            kind: Annotation = _SchemaReader(root, name, level=logging.DEBUG).read()
            if wraps:
                kind = Annotated[kind, AfterValidator(lambda value: getattr(value, member, value))]
            return TypeAdapter[Any](kind)
        except Exception as exc:
            # Boundary: odd schemas cost the type, never a result.
            raise SchemaError(f"{type(exc).__name__}: {str(exc).partition(chr(10))[0]}") from None

    return TypeLoader(make, member=member if wraps else None)


def _permissive(name: str, reason: str) -> type[BaseModel]:
    from pydantic import ConfigDict, create_model

    _log.warning("schema %r: %s; its model accepts any object", name, printable(reason))
    return create_model(_class_name(name), __config__=ConfigDict(extra="allow"))


class _SchemaReader:
    """A reader of one schema; the model of a `$ref` target is made once, so that recursion ends.

    The name of a target's model is reserved before the model is made: a reference within the target finds the name, and
    is a forward reference that `read` resolves at the end, when all models exist.
    """

    def __init__(self, root: SchemaNode, name: str, *, level: int = logging.WARNING) -> None:
        self._root = root
        self._name = name
        self._level = level
        self._depth = 0
        self._by_ref: dict[str, Annotation] = {}
        self._reserved: dict[str, str] = {}
        self._models: dict[str, type[BaseModel]] = {}

    def read(self) -> Annotation:
        """Return the type of the whole schema, with its forward references resolved."""
        schema = self._root
        found = self._referenced("#", schema, self._name, root=True)
        for model in self._models.values():
            model.model_rebuild(_types_namespace=dict(self._models))
        return found

    def _type(self, schema: JsonValue, name: str) -> Annotation:
        """Return the annotation for a subschema."""
        if not isinstance(schema, dict):
            if schema is not True:
                self._warn(name, f"{schema!r:.40} is not a schema")
            return Any
        unread = sorted(_NOT_CHECKED & schema.keys())
        if unread:
            self._warn(name, f"{', '.join(unread)} cannot be expressed")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise SchemaError(f"nested or chained deeper than {_MAX_DEPTH} levels")
        annotation = self._choose(schema, name)
        self._depth -= 1
        if schema.get("nullable") is True:
            return typing.Union[annotation, None]  # noqa: UP007  # a ForwardRef knows no |
        return annotation  # a ForwardRef knows no |

    def _choose(self, schema: SchemaNode, name: str) -> Annotation:
        # In this order: a reference or a value says more than the keywords beside it, and a union more than a type.
        if "$ref" in schema:
            return self._reference(schema["$ref"], name)
        if "const" in schema:
            return self._literal([schema["const"]], name)
        if isinstance(schema.get("enum"), list):
            return self._literal(listed(schema, "enum"), name)
        for key in ("anyOf", "oneOf"):
            if listed(schema, key):
                return self._alternatives(schema, key, name)
        if listed(schema, "allOf"):
            return self._type(self._merged(schema), name)
        kind = schema.get("type")
        if isinstance(kind, list):
            return self._union([{**schema, "type": one} for one in kind], name)
        if kind is None:
            kind = _implied_kind(schema)
        return self._of_kind(schema, kind, name)

    def _of_kind(self, schema: SchemaNode, kind: JsonValue, name: str) -> Annotation:
        if kind == "object":
            return self._object(schema, name)
        if kind == "array":
            return _constrained(self._array(schema, name), schema, _SIZES)
        if kind == "string":
            return self._string(schema, name)
        if isinstance(kind, str) and kind in _SCALARS:
            return _constrained(_SCALARS[kind], schema, _NUMERIC if kind in {"integer", "number"} else {})
        if kind is not None:
            self._warn(name, f"type {kind!r:.40} is unknown")
        return Any

    def _reference(self, ref: JsonValue, name: str) -> Annotation:
        target = local_target(self._root, ref)
        if not isinstance(target, dict):
            self._warn(name, f"$ref {ref!r:.80} does not point into the schema")
            return Any
        return self._referenced(str(ref), target, str(ref).rpartition("/")[2] or self._name)

    def _referenced(self, ref: str, target: SchemaNode, name: str, *, root: bool = False) -> Annotation:
        """Return the type of a reference's target; inside itself a model is a forward reference."""
        if ref in self._by_ref:
            return self._by_ref[ref]
        has_fields = root or bool(target.get("properties"))
        is_model = has_fields and _is_plain_object(target)
        if ref in self._reserved:
            if is_model:
                return typing.ForwardRef(self._reserved[ref])
            self._warn(name, "it contains itself without being an object")
            return Any
        self._reserved[ref] = self._free_class_name(name)
        if is_model:
            found = self._model(target, name, self._reserved[ref])
        else:
            found = self._type(target, name)
        self._by_ref[ref] = found
        return found

    def _literal(self, values: list[JsonValue], name: str) -> Annotation:
        if values and all(isinstance(value, str | int | None) for value in values):
            return Literal[tuple(values)]
        self._warn(name, "its enum or const holds more than strings, integers, booleans and null")
        return Any

    def _alternatives(self, schema: SchemaNode, key: str, name: str) -> Annotation:
        """Return the union of the branches, each merged with its sibling keywords; shapeless branches only restrict."""
        skipped = {key, "description", "title", "default"}
        beside = without_members(schema, *skipped)
        branches = [branch for branch in listed(schema, key) if isinstance(branch, dict)]
        if not branches or not all(map(_has_shape, branches)):
            self._warn(name, f"{key} cannot be expressed")
            return self._type(beside, name)
        if _has_shape(beside):
            branches = [_join(beside, branch) for branch in branches]
        return self._union(branches, name)

    def _union(self, schemas: list[SchemaNode], name: str) -> Annotation:
        kinds = [self._type(schema, f"{name}_{number}") for number, schema in enumerate(schemas, 1)]
        return typing.Union[tuple(kinds)]  # noqa: UP007  # of a tuple

    def _merged(self, schema: SchemaNode) -> SchemaNode:
        """Return a schema with its `allOf` parts joined into it, references followed once."""
        result = without_members(schema, "allOf")
        for part in map(members, listed(schema, "allOf")):
            target = members(local_target(self._root, part.get("$ref")))
            beside = without_members(part, "$ref")
            result = _join(result, {**target, **beside})
        return result

    def _string(self, schema: SchemaNode, name: str) -> Annotation:
        from pydantic import Field, TypeAdapter

        annotation = _constrained(str, schema, _SIZES)
        pattern = text(schema, "pattern")
        if pattern is None:
            return annotation
        try:
            narrowed: Annotation = Annotated[annotation, Field(pattern=pattern)]
            TypeAdapter[Any](narrowed)
        except Exception:
            # Boundary: pydantic's regular expressions have no look-around.
            self._warn(name, f"pattern {pattern!r:.80} cannot be expressed")
            return annotation
        return narrowed

    def _array(self, schema: SchemaNode, name: str) -> Annotation:
        items = schema.get("items")
        if listed(schema, "prefixItems") or isinstance(items, list):
            self._warn(name, "items by position cannot be expressed")
            return list[Any]
        if items is not None:
            return list[self._type(items, f"{name}_item")]
        return list[Any]

    def _object(self, schema: SchemaNode, name: str) -> Annotation:
        if schema.get("properties"):
            return self._model(schema, name)
        others = schema.get("additionalProperties", True)
        if isinstance(others, dict):
            return dict[str, self._type(others, f"{name}_value")]
        return dict[str, Any]

    def _model(self, schema: SchemaNode, name: str, class_name: str | None = None) -> type[BaseModel]:
        from pydantic import ConfigDict, create_model

        class_name = class_name or self._free_class_name(name)
        self._reserved.setdefault(f"model {class_name}", class_name)
        required = set(texts(schema, "required"))
        if len(texts(schema, "required")) < len(listed(schema, "required")):
            self._warn(name, "required has entries that are not names")
        fields: dict[str, Any] = {}
        for key, sub in named(schema, "properties").items():
            fields[_attribute(key, fields)] = self._field(key, sub, f"{name}_{key}", required=key in required)
        others = schema.get("additionalProperties", True)
        if isinstance(others, dict) and others:
            self._warn(name, "the type of further properties cannot be expressed")
        extra: Literal["forbid", "allow"] = "forbid" if others is False else "allow"
        config = ConfigDict(extra=extra, populate_by_name=True, protected_namespaces=())
        model = create_model(class_name, __config__=config, __doc__=text(schema, "description"), **fields)
        self._models[class_name] = model
        return model

    def _field(self, key: str, sub: JsonValue, name: str, *, required: bool) -> tuple[Annotation, FieldInfo]:
        from pydantic import Field

        node = members(sub)
        options: dict[str, Any] = {"alias": key, "description": text(node, "description"), "title": text(node, "title")}
        if not required:
            options["default"] = node.get("default")
        return self._type(sub, name), Field(**options)

    def _free_class_name(self, name: str) -> str:
        wanted = free = _class_name(name)
        number = 2
        while free in self._reserved.values():
            free = f"{wanted}{number}"
            number += 1
        return free

    def _warn(self, name: str, what: str) -> None:
        _log.log(self._level, "schema %r: at %r: %s; it is not checked", self._name, name, printable(what))


def _implied_kind(schema: SchemaView) -> str | None:
    """Return the type that a schema without `type` describes."""
    if isinstance(schema.get("properties"), dict):
        return "object"
    if "items" in schema:
        return "array"
    return None


def _is_plain_object(schema: SchemaView) -> bool:
    return schema.keys().isdisjoint(_CHOICES) and schema.get("type", "object") == "object"


def _has_shape(schema: SchemaView) -> bool:
    return not schema.keys().isdisjoint(_SHAPE)


def _join(base: SchemaView, part: SchemaView) -> SchemaNode:
    """Merge two schemas: properties and required names of both; of other keywords `part` wins."""
    joined = {**base, **part}
    for key in joined.keys() & {"properties", "$defs"}:
        joined[key] = {**named(base, key), **named(part, key)}
    if "required" in joined:
        joined["required"] = [*listed(base, "required"), *listed(part, "required")]
    return joined


def _constrained(annotation: Annotation, schema: SchemaNode, keywords: Mapping[str, str]) -> Annotation:
    from pydantic import Field

    bounds: dict[str, Any] = {}
    for key, argument in keywords.items():
        bound = as_number(schema.get(key))
        if bound is not None:
            bounds[argument] = bound
    if bounds:
        return Annotated[annotation, Field(**bounds)]
    return annotation


def _attribute(key: str, taken: Collection[str]) -> str:
    """Return a Python name for a property that is legal in a model and not taken."""
    from pydantic import BaseModel

    name = re.sub(r"\W", "_", key).lstrip("_") or "field"
    if name[0].isdecimal():
        name = f"field_{name}"
    if keyword.iskeyword(name) or hasattr(BaseModel, name):
        name += "_"
    while name in taken:
        name += "_"
    return name


def _class_name(name: str) -> str:
    words = re.split(r"[\W_]+", name)
    joined = "".join(word[:1].upper() + word[1:] for word in words)
    if joined.isidentifier() and not keyword.iskeyword(joined):
        return joined
    return f"Model{joined}"
