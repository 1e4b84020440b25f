"""Schema rules of structured outputs: every object closed; for OpenAI also every member required, every type named.

An optional member becomes nullable instead; `drop_fillers` removes those nulls from the model's output.
Pure; the bounds are those of the guide "Structured Outputs", section "Supported schemas".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from toolweave.errors import SchemaError
from toolweave.schema._normalize import types_of, views

_MAX_PROPERTIES = 5_000
_MAX_DEPTH = 10
_MAX_ENUM = 1_000
_MAX_CHARACTERS = 120_000
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


def close(out: dict[str, Any], where: str, original: Mapping[str, Any]) -> bool:
    """Make one lowered schema strict, in place; return whether null now means an omitted member.

    Raises:
        SchemaError: It takes any value, or an object or array of any content, which strict mode cannot express.
    """
    kinds = types_of(out)
    if not kinds and not out.keys() & {"$ref", "anyOf"}:
        if "properties" in out:
            kinds = ("object",)
        elif values := out.get("enum", [out["const"]] if "const" in out else []):
            kinds = types_of_values(values)
        else:
            raise SchemaError(_ANY_VALUE, pointer=where)
        out["type"] = kinds[0] if len(kinds) == 1 else list(kinds)
    if "array" in kinds and not out.get("items"):
        raise SchemaError("strict mode needs arrays of one type of item", pointer=where)
    if "object" in kinds:
        return _close_object(out, where, original)
    return False


def _close_object(out: dict[str, Any], where: str, original: Mapping[str, Any]) -> bool:
    properties: dict[str, Any] = out.get("properties", {})
    _check_closed(properties, where, original)
    optional = [name for name in properties if name not in out.get("required", ())]
    filled = [name for name in optional if not _takes_null(properties[name])]
    for name in filled:
        properties[name] = _nullable(properties[name])
    out["properties"] = properties
    out["required"] = list(properties)
    out["additionalProperties"] = False
    return bool(filled)


def shut(out: dict[str, Any], where: str, original: Mapping[str, Any]) -> None:
    """Close one lowered schema for Anthropic's structured outputs, in place; optional members stay optional.

    Raises:
        SchemaError: It takes any value, or is an object with members of any name or an array of any items.
    """
    kinds = types_of(out)
    if not kinds and not out.keys() & {"$ref", "anyOf", "const", "enum", "properties"}:
        raise SchemaError(_ANY_VALUE, pointer=where)
    if "array" in kinds and not out.get("items"):
        raise SchemaError("strict mode needs arrays of one type of item", pointer=where)
    if "object" in kinds or "properties" in out:
        _check_closed(out.get("properties", {}), where, original)
        out["additionalProperties"] = False


def _check_closed(properties: Mapping[str, Any], where: str, original: Mapping[str, Any]) -> None:
    if original.get("additionalProperties", not properties) is not False or "patternProperties" in original:
        raise SchemaError(_ANY_MEMBER, pointer=where)
    if missing := set(original.get("required", ())) - set(properties):
        raise SchemaError(f"strict mode needs a schema of the required member {min(missing)!r}", pointer=where)


def check_not_recursive(definitions: Mapping[str, Any]) -> None:
    """Refuse recursive definitions, which Anthropic's structured outputs do not take.

    Raises:
        SchemaError: Naming one that does.
    """
    leads = {name: set(_references(definition)) for name, definition in definitions.items()}
    while True:
        ends = {name for name, targets in leads.items() if not targets & leads.keys()}
        if not ends:
            break
        leads = {name: targets for name, targets in leads.items() if name not in ends}
    if leads:
        raise SchemaError("structured outputs have no schemas within themselves", pointer=f"/$defs/{min(leads)}")


def check_strict(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that passes a bound of strict mode.

    Raises:
        SchemaError: Naming the bound.
    """
    properties = values = 0
    characters = sum(map(len, schema.get("$defs", ())))
    for node, depth in _objects(schema):
        names: Mapping[str, Any] = node.get("properties", {})
        listed = _texts(node.get("enum", ()))
        properties += len(names)
        values += len(node.get("enum", ()))
        characters += sum(map(len, names)) + listed + _texts([node.get("const")])
        if depth > _MAX_DEPTH:
            raise SchemaError(f"strict mode takes {_MAX_DEPTH} levels of nesting, this has more")
        if len(node.get("enum", ())) > _LONG_ENUM and listed > _MAX_LONG_ENUM_CHARACTERS:
            raise SchemaError(
                f"strict mode takes {_MAX_LONG_ENUM_CHARACTERS} characters in an enum of more than {_LONG_ENUM} "
                f"values, this has {listed}"
            )
    for count, most, things in (
        (properties, _MAX_PROPERTIES, "properties"),
        (values, _MAX_ENUM, "enum values"),
        (characters, _MAX_CHARACTERS, "characters of names and values"),
    ):
        if count > most:
            raise SchemaError(f"strict mode takes {most} {things}, this has {count}")


def parameter_counts(schema: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of optional members in a lowered schema, and of members with several types.

    Those in definitions do not count, as Anthropic's API counts.
    """
    optional = unions = 0
    for node, _ in _objects({key: value for key, value in schema.items() if key != "$defs"}):
        members: Mapping[str, Any] = node.get("properties", {})
        optional += len(members.keys() - set(node.get("required", ())))
        unions += sum("anyOf" in one or isinstance(one.get("type"), list) for one in members.values())
    return optional, unions


def types_of_values(values: Iterable[Any]) -> tuple[str, ...]:
    """Return the types of JSON values, each once."""
    return tuple(dict.fromkeys(map(_type_of, values)))


def drop_fillers(value: Any, schema: Any) -> Any:
    """Remove from a model's strict-mode output the nulls that mean omitted members.

    `schema` is the original one, before it was lowered. A null that it accepts stays.
    """
    return _dropped(value, [schema], schema, 0)


def _dropped(value: Any, schemas: list[Any], root: Any, depth: int) -> Any:
    if depth > _MAX_VALUE_DEPTH or not isinstance(value, (dict, list)):
        return value  # pyright: ignore[reportUnknownVariableType] - any JSON value
    # each once, or else the alternatives of the levels would multiply
    applying = list({id(view): view for schema in schemas for view in views(schema, root)}.values())
    if isinstance(value, list):
        return [
            _dropped(one, [part for view in applying for part in _item_schemas(view, number)], root, depth + 1)
            for number, one in enumerate(cast("list[Any]", value))
        ]
    out: dict[str, Any] = {}
    for name, member in cast("dict[str, Any]", value).items():
        parts = [view["properties"][name] for view in applying if name in view.get("properties", ())]
        if member is None and parts and not any(_accepts_null(part, root) for part in parts):
            continue
        out[name] = _dropped(member, parts, root, depth + 1)
    return out


def _item_schemas(view: Mapping[str, Any], number: int) -> list[Any]:
    """Return the schema of one item of an array, in the words of any draft."""
    items = view.get("items")
    listed = view.get("prefixItems", items)
    if isinstance(listed, list) and number < len(cast("list[Any]", listed)):
        return [listed[number]]
    if isinstance(items, Mapping):
        return [items]
    return []


def _accepts_null(schema: Any, root: Any) -> bool:
    if not isinstance(schema, Mapping):
        return schema is not False
    node = cast("Mapping[str, Any]", schema)
    if node.get("nullable") is True:
        return True
    if "$ref" in node or "anyOf" in node or "oneOf" in node or "allOf" in node:
        return any(_takes_null(view) for view in views(node, root))
    return _takes_null(node) or not node.keys() & {"type", "enum", "const"}


def _takes_null(node: Mapping[str, Any]) -> bool:
    if "null" in types_of(node):
        return True
    if "type" not in node and None in node.get("enum", ()):
        return True
    branches = node.get("anyOf")
    return isinstance(branches, list) and any(_takes_null(branch) for branch in cast("list[Any]", branches) if branch)


def _nullable(node: dict[str, Any]) -> dict[str, Any]:
    kinds = types_of(node)
    if not kinds or "const" in node:
        if "description" in node:
            described = {"description": node.pop("description")}
        else:
            described = {}
        branches = node["anyOf"] if list(node) == ["anyOf"] else [node]
        return {"anyOf": [*branches, {"type": "null"}], **described}
    node["type"] = [*kinds, "null"]
    if "enum" in node and None not in node["enum"]:
        node["enum"] = [*node["enum"], None]
    return node


def _type_of(value: Any) -> str:
    return next((name for kind, name in _TYPES if isinstance(value, kind)), "object")


def _texts(values: Iterable[Any]) -> int:
    return sum(len(value) for value in values if isinstance(value, str))


def _references(definition: Mapping[str, Any]) -> Iterator[str]:
    for node, _ in _objects(definition):
        if isinstance(reference := node.get("$ref"), str):
            yield reference.rpartition("/")[2]


def _objects(schema: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield every schema with its depth in objects and arrays."""
    waiting: list[tuple[Any, int]] = [(schema, 0)]
    while waiting:
        node, depth = waiting.pop()
        if not isinstance(node, Mapping):
            continue
        one = cast("Mapping[str, Any]", node)
        yield one, depth
        waiting += [(child, depth + 1) for child in one.get("properties", {}).values()]
        waiting += [(one["items"], depth + 1)] if "items" in one else []
        waiting += [(child, depth) for child in one.get("anyOf", ())]
        waiting += [(child, 0) for child in one.get("$defs", {}).values()]
