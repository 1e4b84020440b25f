"""Conversion of a JSON Schema to a pydantic model, for callers that want types instead of dictionaries.

A convenience beside the schema, which stays authoritative: what pydantic cannot say
becomes permissive and is logged, and no function raises for an odd schema.
"""

from __future__ import annotations

import keyword
import logging
import re
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from toolweave.errors import SchemaError, printable
from toolweave.schema._limits import check_schema, local_target
from toolweave.schema._profiles import SchemaNode
from toolweave.schema._type_loader import TypeLoader

if TYPE_CHECKING:
    from pydantic import BaseModel, TypeAdapter

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
_SCALARS: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}
_MAX_DEPTH = 100


def schema_to_model(schema: Mapping[str, Any], name: str = "Arguments") -> type[BaseModel]:
    """Return a pydantic model for a JSON Schema of an object.

    Property names that are no Python names get one, with the original as alias; dump with
    `by_alias=True, exclude_unset=True` to get the object back. What has no equivalent accepts
    anything and is logged as a warning.
    """
    from pydantic import BaseModel  # 40 ms, and only this room's conversions need it

    if not isinstance(schema, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # strangers send anything
        return _permissive(name, f"it is a {type(schema).__name__}, not an object")
    root = dict(schema)
    try:
        check_schema(root)
        model = _SchemaReader(root, name).read()
    except Exception as exc:  # boundary: odd schemas cost precision, never a tool
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
    if isinstance(schema, bool) or not any(part in schema for part in _TELLING):
        return None
    wraps = schema.get(wrap_mark) is True

    def make() -> TypeAdapter[Any]:
        from pydantic import AfterValidator, TypeAdapter

        try:
            check_schema(schema)
            kind: Any = _SchemaReader(dict(schema), name, level=logging.DEBUG).read()
            if wraps:
                kind = Annotated[kind, AfterValidator(lambda value: getattr(value, member, value))]
            return TypeAdapter[Any](kind)
        except Exception as exc:  # boundary: odd schemas cost the type, never a result
            raise SchemaError(f"{type(exc).__name__}: {str(exc).partition(chr(10))[0]}") from None

    return TypeLoader(make, member=member if wraps else None)


def _permissive(name: str, reason: str) -> type[BaseModel]:
    from pydantic import ConfigDict, create_model

    _log.warning("schema %r: %s; its model accepts any object", name, printable(reason))
    return create_model(_class_name(name), __config__=ConfigDict(extra="allow"))


class _SchemaReader:
    """A reader of one schema; the model of a `$ref` target is made once, so that recursion ends."""

    def __init__(self, root: SchemaNode, name: str, *, level: int = logging.WARNING) -> None:
        self._root = root
        self._name = name
        self._level = level
        self._depth = 0
        self._by_ref: dict[str, Any] = {}
        self._reserved: dict[str, str] = {}
        self._models: dict[str, type[BaseModel]] = {}

    def read(self) -> Any:
        """Return the type of the whole schema, with its forward references resolved."""
        schema = self._root
        found = self._referenced("#", schema, self._name, root=True)
        for model in self._models.values():
            model.model_rebuild(_types_namespace=dict(self._models))
        return found

    def _type(self, schema: Any, name: str) -> Any:
        """Return the annotation for a subschema."""
        if not isinstance(schema, dict):
            if schema is not True:
                self._warn(name, f"{schema!r:.40} is no schema")
            return Any
        schema = cast("SchemaNode", schema)
        if unread := sorted(_NOT_CHECKED & schema.keys()):
            self._warn(name, f"{', '.join(unread)} cannot be expressed")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise SchemaError(f"nested or chained deeper than {_MAX_DEPTH} levels")
        annotation = self._choose(schema, name)
        self._depth -= 1
        if schema.get("nullable") is True:
            return typing.Union[annotation, None]  # noqa: UP007  # a ForwardRef knows no |
        return annotation  # a ForwardRef knows no |

    def _choose(self, schema: SchemaNode, name: str) -> Any:
        if "$ref" in schema:
            return self._reference(schema["$ref"], name)
        if "const" in schema:
            return self._literal([schema["const"]], name)
        if isinstance(schema.get("enum"), list):
            return self._literal(schema["enum"], name)
        for key in ("anyOf", "oneOf"):
            if _is_list(schema.get(key)):
                return self._alternatives(schema, key, name)
        if _is_list(schema.get("allOf")):
            return self._type(self._merged(schema), name)
        kind = schema.get("type")
        if isinstance(kind, list):
            return self._union([{**schema, "type": one} for one in cast("list[Any]", kind)], name)
        return self._of_kind(schema, kind, name)

    def _of_kind(self, schema: SchemaNode, kind: Any, name: str) -> Any:
        if kind == "object" or (kind is None and isinstance(schema.get("properties"), dict)):
            return self._object(schema, name)
        if kind == "array" or (kind is None and "items" in schema):
            return _constrained(self._array(schema, name), schema, _SIZES)
        if kind == "string":
            return self._string(schema, name)
        if isinstance(kind, str) and kind in _SCALARS:
            return _constrained(_SCALARS[kind], schema, _NUMERIC if kind in {"integer", "number"} else {})
        if kind is not None:
            self._warn(name, f"type {kind!r:.40} is unknown")
        return Any

    def _reference(self, ref: Any, name: str) -> Any:
        target = local_target(self._root, ref)
        if not isinstance(target, dict):
            self._warn(name, f"$ref {ref!r:.80} does not point into the schema")
            return Any
        return self._referenced(str(ref), cast("SchemaNode", target), str(ref).rpartition("/")[2] or self._name)

    def _referenced(self, ref: str, target: SchemaNode, name: str, *, root: bool = False) -> Any:
        """Return the type of a reference's target; inside itself a model is a forward reference."""
        if ref in self._by_ref:
            return self._by_ref[ref]
        plain = not any(key in target for key in _CHOICES) and target.get("type", "object") == "object"
        is_model = plain and (root or bool(target.get("properties")))
        if ref in self._reserved:
            if is_model:
                return typing.ForwardRef(self._reserved[ref])
            self._warn(name, "it contains itself without being an object")
            return Any
        self._reserved[ref] = self._free_class_name(name)
        self._by_ref[ref] = found = (
            self._model(target, name, self._reserved[ref]) if is_model else self._type(target, name)
        )
        return found

    def _literal(self, values: list[Any], name: str) -> Any:
        if values and all(value is None or isinstance(value, (str, int)) for value in values):
            return Literal[tuple(values)]
        self._warn(name, "its enum or const holds more than strings, integers, booleans and null")
        return Any

    def _alternatives(self, schema: SchemaNode, key: str, name: str) -> Any:
        """Return the union of the branches, each merged with its sibling keywords; shapeless branches only restrict."""
        beside = {
            other: value for other, value in schema.items() if other not in {key, "description", "title", "default"}
        }
        branches = [branch for branch in map(_object, schema[key]) if branch is not None]
        if not branches or not all(any(part in branch for part in _SHAPE) for branch in branches):
            self._warn(name, f"{key} cannot be expressed")
            return self._type(beside, name)
        shaped = any(part in beside for part in _SHAPE)
        return self._union([_join(beside, branch) if shaped else branch for branch in branches], name)

    def _union(self, schemas: list[SchemaNode], name: str) -> Any:
        members = [self._type(schema, f"{name}_{number}") for number, schema in enumerate(schemas, 1)]
        return typing.Union[tuple(members)]  # noqa: UP007  # of a tuple

    def _merged(self, schema: SchemaNode) -> SchemaNode:
        """Return a schema with its `allOf` parts joined into it, references followed once."""
        result = {key: value for key, value in schema.items() if key != "allOf"}
        for part in filter(None, map(_object, schema["allOf"])):
            target = _object(local_target(self._root, part.get("$ref"))) or {}
            result = _join(result, {**target, **{key: value for key, value in part.items() if key != "$ref"}})
        return result

    def _string(self, schema: SchemaNode, name: str) -> Any:
        from pydantic import Field, TypeAdapter

        annotation = _constrained(str, schema, _SIZES)
        pattern = schema.get("pattern")
        if not isinstance(pattern, str):
            return annotation
        try:
            narrowed: Any = Annotated[annotation, Field(pattern=pattern)]
            TypeAdapter[Any](narrowed)
        except Exception:  # boundary: pydantic's regular expressions have no look-around
            self._warn(name, f"pattern {pattern!r:.80} cannot be expressed")
            return annotation
        return narrowed

    def _array(self, schema: SchemaNode, name: str) -> Any:
        items = schema.get("items")
        if _is_list(schema.get("prefixItems")) or isinstance(items, list):
            self._warn(name, "items by position cannot be expressed")
            return list[Any]
        if items is not None:
            return list[self._type(items, f"{name}_item")]
        return list[Any]

    def _object(self, schema: SchemaNode, name: str) -> Any:
        if schema.get("properties"):
            return self._model(schema, name)
        others = schema.get("additionalProperties", True)
        if isinstance(others, dict):
            return dict[str, self._type(others, f"{name}_value")]
        return dict[str, Any]

    def _model(self, schema: SchemaNode, name: str, class_name: str | None = None) -> Any:
        from pydantic import ConfigDict, create_model

        class_name = class_name or self._free_class_name(name)
        self._reserved.setdefault(f"model {class_name}", class_name)
        properties = schema.get("properties")
        required = schema.get("required")
        if isinstance(required, list):
            wanted = set(cast("list[Any]", required))
        else:
            wanted = set[Any]()
        fields: dict[str, Any] = {}
        for key, sub in cast("SchemaNode", properties).items() if isinstance(properties, dict) else ():
            fields[_attribute(key, fields)] = self._field(key, sub, f"{name}_{key}", required=key in wanted)
        others = schema.get("additionalProperties", True)
        if isinstance(others, dict) and others:
            self._warn(name, "the type of further properties cannot be expressed")
        config = ConfigDict(
            extra="forbid" if others is False else "allow", populate_by_name=True, protected_namespaces=()
        )
        model = create_model(class_name, __config__=config, __doc__=_text(schema, "description"), **fields)
        self._models[class_name] = model
        return model

    def _field(self, key: str, sub: Any, name: str, *, required: bool) -> tuple[Any, Any]:
        from pydantic import Field

        annotation = self._type(sub, name)
        options: dict[str, Any] = {"alias": key}
        if isinstance(sub, dict):
            options["description"] = _text(cast("SchemaNode", sub), "description")
            options["title"] = _text(cast("SchemaNode", sub), "title")
        if not required:
            options["default"] = cast("SchemaNode", sub).get("default") if isinstance(sub, dict) else None
        return annotation, Field(**options)

    def _free_class_name(self, name: str) -> str:
        wanted = free = _class_name(name)
        number = 2
        while free in self._reserved.values():
            free = f"{wanted}{number}"
            number += 1
        return free

    def _warn(self, name: str, what: str) -> None:
        _log.log(self._level, "schema %r: at %r: %s; it is not checked", self._name, name, printable(what))


def _join(base: SchemaNode, part: SchemaNode) -> SchemaNode:
    """Merge two schemas: properties and required names of both; of other keywords `part` wins."""
    joined = {**base, **part}
    for key in ("properties", "$defs"):
        if isinstance(base.get(key), dict) and isinstance(part.get(key), dict):
            joined[key] = {**base[key], **part[key]}
    if isinstance(base.get("required"), list) and isinstance(part.get("required"), list):
        joined["required"] = [*base["required"], *part["required"]]
    return joined


def _constrained(annotation: Any, schema: SchemaNode, keywords: Mapping[str, str]) -> Any:
    from pydantic import Field

    bounds = {
        argument: schema[key]
        for key, argument in keywords.items()
        if isinstance(schema.get(key), (int, float)) and not isinstance(schema[key], bool)
    }
    if bounds:
        return Annotated[annotation, Field(**bounds)]
    return annotation


def _attribute(key: str, taken: Mapping[str, Any]) -> str:
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


def _object(value: Any) -> SchemaNode | None:
    if isinstance(value, dict):
        return cast("SchemaNode", value)
    return None


def _text(schema: SchemaNode, key: str) -> str | None:
    value = schema.get(key)
    if isinstance(value, str):
        return value
    return None


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)  # pyright: ignore[reportUnknownArgumentType]
