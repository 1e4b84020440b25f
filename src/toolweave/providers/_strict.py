"""Schema rules of structured outputs: every object closed; for OpenAI also every member required, every type named.

An optional member becomes nullable instead; `drop_fillers` removes those nulls from the model's output.
Pure; the bounds are those of the guide "Structured Outputs", section "Supported schemas".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any

from toolweave._json_types import without_members
from toolweave.errors import SchemaError
from toolweave.schema._json_values import JsonValue, SchemaNode, SchemaView, listed, members, named, texts
from toolweave.schema.normalize import type_keyword, types_of, views

MAX_PROPERTIES = 5_000
MAX_DEPTH = 10
MAX_ENUM = 1_000
MAX_CHARACTERS = 120_000
_LONG_ENUM = 250
"""Values from which on the characters of an enum's texts are bounded."""
_MAX_LONG_ENUM_CHARACTERS = 15_000
_MAX_VALUE_DEPTH = 64
_TYPES = (
    (bool, "boolean"),
    (str, "string"),
    (int, "integer"),
    (float, "number"),
    (type(None), "null"),
    (list, "array"),
)
_ANY_VALUE = "strict mode needs a type, and this takes any value"
_ANY_MEMBER = "strict mode has no objects with members of any name"


def close(out: SchemaNode, where: str, original: SchemaView) -> bool:
    """Make one lowered schema strict, in place; return whether null now means an omitted member.

    Raises:
        SchemaError: It takes any value, or an object or array of any content, which strict mode cannot express.
    """
    kinds = types_of(out)
    if not kinds and out.keys().isdisjoint({"$ref", "anyOf"}):
        kinds = _implied_types(out, where)
        out["type"] = type_keyword(kinds)
    _check_items(out, kinds, where)
    if "object" in kinds:
        return _close_object(out, where, original)
    return False


def _implied_types(out: SchemaNode, where: str) -> tuple[str, ...]:
    """Return the types of the values that a schema without `type` takes."""
    if "properties" in out:
        return ("object",)
    values = listed(out, "enum")
    if "enum" not in out and "const" in out:
        values = [out["const"]]
    if not values:
        raise SchemaError(_ANY_VALUE, pointer=where)
    return types_of_values(values)


def _check_items(out: SchemaNode, kinds: tuple[str, ...], where: str) -> None:
    if "array" in kinds and not out.get("items"):
        raise SchemaError("strict mode needs arrays of one type of item", pointer=where)


def _close_object(out: SchemaNode, where: str, original: SchemaView) -> bool:
    properties = named(out, "properties")
    _check_closed(properties, where, original)
    required = listed(out, "required")
    is_filled = False
    for name, member in properties.items():
        if name in required or not isinstance(member, dict):
            continue
        if not _takes_null(member):
            properties[name] = _nullable(member)
            is_filled = True
    out["properties"] = properties
    out["required"] = list(properties)
    out["additionalProperties"] = False
    return is_filled


def shut(out: SchemaNode, where: str, original: SchemaView) -> None:
    """Close one lowered schema for Anthropic's structured outputs, in place; optional members stay optional.

    Raises:
        SchemaError: It takes any value, or is an object with members of any name or an array of any items.
    """
    kinds = types_of(out)
    is_any = not kinds and out.keys().isdisjoint({"$ref", "anyOf", "const", "enum", "properties"})
    if is_any:
        raise SchemaError(_ANY_VALUE, pointer=where)
    _check_items(out, kinds, where)
    if "object" in kinds or "properties" in out:
        _check_closed(named(out, "properties"), where, original)
        out["additionalProperties"] = False


def _check_closed(properties: SchemaView, where: str, original: SchemaView) -> None:
    if original.get("additionalProperties", not properties) is not False or "patternProperties" in original:
        raise SchemaError(_ANY_MEMBER, pointer=where)
    missing = set(texts(original, "required")) - set(properties)
    if missing:
        raise SchemaError(f"strict mode needs a schema of the required member {min(missing)!r}", pointer=where)


def check_not_recursive(definitions: SchemaView) -> None:
    """Refuse recursive definitions, which Anthropic's structured outputs do not take.

    Raises:
        SchemaError: Naming one that does.
    """
    leads = {name: set(_references(members(definition))) for name, definition in definitions.items()}
    # Definitions that lead to no other one are removed until none is left to remove. The rest lead to one another.
    while True:
        ends = [name for name, targets in leads.items() if targets.isdisjoint(leads)]
        if not ends:
            break
        for name in ends:
            del leads[name]
    if leads:
        raise SchemaError("structured outputs have no schemas within themselves", pointer=f"/$defs/{min(leads)}")


def check_strict(schema: SchemaView) -> None:
    """Refuse a schema that passes a bound of strict mode.

    Raises:
        SchemaError: Naming the bound.
    """
    properties = 0
    values = 0
    characters = _characters(list(named(schema, "$defs")))
    for node, depth in _objects(schema):
        names = named(node, "properties")
        options = listed(node, "enum")
        properties += len(names)
        values += len(options)
        characters += _characters([*names, *options, node.get("const")])
        if depth > MAX_DEPTH:
            raise SchemaError(f"strict mode takes {MAX_DEPTH} levels of nesting, this has more")
        if len(options) > _LONG_ENUM and _characters(options) > _MAX_LONG_ENUM_CHARACTERS:
            raise SchemaError(
                f"strict mode takes {_MAX_LONG_ENUM_CHARACTERS} characters in an enum of more than {_LONG_ENUM} "
                f"values, this has {_characters(options)}"
            )
    for count, maximum, things in (
        (properties, MAX_PROPERTIES, "properties"),
        (values, MAX_ENUM, "enum values"),
        (characters, MAX_CHARACTERS, "characters of names and values"),
    ):
        if count > maximum:
            raise SchemaError(f"strict mode takes {maximum} {things}, this has {count}")


def parameter_counts(schema: SchemaView) -> tuple[int, int]:
    """Return the number of optional members in a lowered schema, and of members with several types.

    Those in definitions do not count, as Anthropic's API counts.
    """
    optional = 0
    unions = 0
    for node, _ in _objects(without_members(schema, "$defs")):
        properties = named(node, "properties")
        optional += len(properties.keys() - set(texts(node, "required")))
        unions += sum(map(_has_several_types, properties.values()))
    return optional, unions


def _has_several_types(schema: JsonValue) -> bool:
    node = members(schema)
    return "anyOf" in node or isinstance(node.get("type"), list)


def types_of_values(values: Iterable[JsonValue]) -> tuple[str, ...]:
    """Return the types of JSON values, each once."""
    return tuple(dict.fromkeys(map(_type_of, values)))


def drop_fillers(value: Any, schema: Any) -> Any:  # any JSON values
    """Remove from a model's strict-mode output the nulls that mean omitted members.

    `schema` is the original one, before it was lowered. A null that it accepts stays.
    """
    return _dropped(value, [schema], schema, 0)


def _dropped(value: JsonValue, schemas: list[JsonValue], root: JsonValue, depth: int) -> JsonValue:
    if depth > _MAX_VALUE_DEPTH or not isinstance(value, (dict, list)):
        return value
    # Each schema once, or else the alternatives of the levels would multiply.
    applying: dict[int, SchemaView] = {}
    for schema in schemas:
        applying |= {id(view): view for view in views(schema, root)}
    if isinstance(value, list):
        kept: list[JsonValue] = []
        for number, one in enumerate(value):
            parts: list[JsonValue] = []
            for view in applying.values():
                parts += _item_schemas(view, number)
            kept.append(_dropped(one, parts, root, depth + 1))
        return kept
    out: SchemaNode = {}
    for name, member in value.items():
        parts = []
        for view in applying.values():
            properties = named(view, "properties")
            if name in properties:
                parts.append(properties[name])
        if member is None and parts and not _any_accepts_null(parts, root):
            continue
        out[name] = _dropped(member, parts, root, depth + 1)
    return out


def _item_schemas(view: SchemaView, number: int) -> list[JsonValue]:
    """Return the schema of one item of an array, in the words of any draft."""
    items = view.get("items")
    in_order = view.get("prefixItems", items)
    if isinstance(in_order, list) and number < len(in_order):
        return [in_order[number]]
    if isinstance(items, Mapping):
        return [items]
    return []


def _any_accepts_null(schemas: list[JsonValue], root: JsonValue) -> bool:
    return any(_accepts_null(schema, root) for schema in schemas)


def _accepts_null(schema: JsonValue, root: JsonValue) -> bool:
    if not isinstance(schema, Mapping):
        return schema is not False
    if schema.get("nullable") is True:
        return True
    if not schema.keys().isdisjoint(("$ref", "anyOf", "oneOf", "allOf")):
        return any(map(_takes_null, views(schema, root)))
    return _takes_null(schema) or schema.keys().isdisjoint(("type", "enum", "const"))


def _takes_null(node: SchemaView) -> bool:
    if "null" in types_of(node):
        return True
    if "type" not in node and None in listed(node, "enum"):
        return True
    return any(_takes_null(members(branch)) for branch in listed(node, "anyOf"))


def _nullable(node: SchemaNode) -> SchemaNode:
    kinds = types_of(node)
    if not kinds or "const" in node:
        described: SchemaNode = {}
        if "description" in node:
            described["description"] = node.pop("description")
        branches = listed(node, "anyOf") if list(node) == ["anyOf"] else [node]
        return {"anyOf": [*branches, {"type": "null"}], **described}
    node["type"] = [*kinds, "null"]
    if "enum" in node and None not in listed(node, "enum"):
        node["enum"] = [*listed(node, "enum"), None]
    return node


def _type_of(value: JsonValue) -> str:
    return next((name for kind, name in _TYPES if isinstance(value, kind)), "object")


def _characters(values: Iterable[JsonValue]) -> int:
    """Return the number of characters of the texts among values."""
    return sum(len(value) for value in values if isinstance(value, str))


def _references(definition: SchemaView) -> Iterator[str]:
    for node, _ in _objects(definition):
        reference = node.get("$ref")
        if isinstance(reference, str):
            yield reference.rpartition("/")[2]


def _objects(schema: SchemaView) -> Iterator[tuple[SchemaView, int]]:
    """Yield every schema with its depth in objects and arrays."""
    waiting: list[tuple[JsonValue | SchemaView, int]] = [(schema, 0)]
    while waiting:
        node, depth = waiting.pop()
        if not isinstance(node, Mapping):
            continue
        yield node, depth
        # Members and items are a level deeper, alternatives are not. Definitions are counted from their own root.
        deeper = list(named(node, "properties").values())
        if "items" in node:
            deeper.append(node["items"])
        for children, level in (
            (deeper, depth + 1),
            (listed(node, "anyOf"), depth),
            (named(node, "$defs").values(), 0),
        ):
            # The level repeats without end.
            waiting.extend(zip(children, repeat(level)))
