"""Normalization of one level of a JSON Schema of any draft to JSON Schema 2020-12. Pure; knows no provider.

Servers write draft 4, draft 7, OpenAPI and plain mistakes. Keywords with an equivalent in 2020-12 are rewritten,
malformed ones are dropped, and both are reported. Subschemas are left to the caller, which walks the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any, TypeAlias, cast

from toolweave._repairs import Repair
from toolweave.schema._limits import local_target

Note: TypeAlias = Callable[[str], None]
"""A callback that receives each change as one phrase."""

MALFORMED = "is malformed and left out"
_SWITCH = '`"validate_input": false` checks nothing'
BAD_KEYWORD = Repair(
    given="a malformed keyword",
    read_as="the schema without it",
    limit="the rest is checked",
    switch=_SWITCH,
    problem="{} " + MALFORMED,
)
ODD_TYPE = Repair(
    given="a type in another spelling, such as `int`",
    read_as="the type that is meant",
    limit="a type that nobody knows is any type",
    switch=_SWITCH,
    problem="type {!r} is read as {!r}",
)
OLD_REQUIRED = Repair(
    given="`required` that is not a list",
    read_as="nothing is required",
    limit="the rest is checked",
    switch=_SWITCH,
    problem="required is no list and left out",
)
NULLABLE = Repair(
    given="`nullable` of OpenAPI 3.0",
    read_as="null among the types",
    limit="none",
    switch=_SWITCH,
)
DEFINITIONS = ("$defs", "definitions")
ONE_SCHEMA = frozenset(
    {
        *("additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then"),
        *("unevaluatedItems", "unevaluatedProperties"),
    }
)
MANY_SCHEMAS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
NAMED_SCHEMAS = frozenset(("properties", "patternProperties", "dependentSchemas"))

_TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))
_MEANT = {
    "any": "",
    "bool": "boolean",
    "dict": "object",
    "float": "number",
    "int": "integer",
    "list": "array",
    "none": "null",
    "str": "string",
}
_IDENTITY = frozenset(("$schema", "$id", "$comment", "$vocabulary", "$anchor", "$dynamicAnchor", "$recursiveAnchor"))
_TEXTS = frozenset(("$ref", "contentEncoding", "contentMediaType", "description", "format", "pattern", "title"))
ANNOTATIONS = frozenset(("contentEncoding", "contentMediaType", "contentSchema", "default", "format"))
"""Keywords that the model may read, and that no validator of ours enforces."""
_COUNTS = frozenset(
    ("maxContains", "maxItems", "maxLength", "maxProperties", "minContains", "minItems", "minLength", "minProperties")
)
_NUMBERS = frozenset(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"))
_FLAGS = frozenset(("deprecated", "readOnly", "uniqueItems", "writeOnly"))
KEYWORDS = (
    ONE_SCHEMA
    | MANY_SCHEMAS
    | NAMED_SCHEMAS
    | _COUNTS
    | _NUMBERS
    | {
        *(
            "$dynamicRef",
            "$recursiveRef",
            "const",
            "contentEncoding",
            "contentMediaType",
            "default",
            "dependentRequired",
        ),
        *("enum", "format", "pattern", "required", "type", "uniqueItems"),
    }
)
"""Keywords that constrain a value, but `$ref`; others describe, identify, or are unknown."""


def modern(schema: Mapping[str, Any], note: Note) -> dict[str, Any]:
    """Return one level of a schema with the keywords of JSON Schema 2020-12, its subschemas unchanged.

    Identifiers (`$id`, `$schema`, ...) are removed; references are left to the caller.
    """
    node = {key: value for key, value in schema.items() if key not in _IDENTITY}
    _bounds(node)
    _tuples(node)
    _dependencies(node)
    _type(node, note)
    _impossible_branches(node)
    _required(node, note)
    for key in [key for key, value in node.items() if not _well_formed(key, value)]:
        del node[key]
        note(BAD_KEYWORD.problem.format(key))
    return node


def types_of(node: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the types in a schema's `type`, none without one."""
    kind = node.get("type")
    if isinstance(kind, str):
        return (kind,)
    if isinstance(kind, list):
        return tuple(cast("list[str]", kind))
    return ()


def views(schema: Any, root: Any) -> Iterator[Mapping[str, Any]]:  # any JSON values
    """Yield a schema and every other that applies to the same value: behind references of `root`, and alternatives.

    Each is yielded once, so that references in a circle end, and alternatives of alternatives do not multiply.
    """
    waiting = [schema]
    seen = set[int]()
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Mapping) or id(cast("Any", node)) in seen:
            continue
        seen.add(id(cast("Any", node)))
        one = cast("Mapping[str, Any]", node)
        yield one
        if "$ref" in one:
            found = [local_target(root, one["$ref"])]
        else:
            found = list[Any]()
        for keyword in ("allOf", "anyOf", "oneOf"):
            branches = one.get(keyword)
            found += cast("list[Any]", branches) if isinstance(branches, list) else ()
        waiting += reversed(found)


def _bounds(node: dict[str, Any]) -> None:
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(node.get(exclusive), bool) and node.pop(exclusive) and bound in node:  # draft 4
            node[exclusive] = node.pop(bound)


def _tuples(node: dict[str, Any]) -> None:
    rest = node.pop("additionalItems", None)
    if isinstance(node.get("items"), list):  # draft 7
        items = node.pop("items")
        if items:
            node["prefixItems"] = items
        if rest is not None:
            node["items"] = rest


def _dependencies(node: dict[str, Any]) -> None:
    dependencies = node.pop("dependencies", None)
    if not isinstance(dependencies, Mapping):  # draft 7
        return
    for name, wanted in cast("Mapping[str, Any]", dependencies).items():
        if isinstance(wanted, list):
            keyword = "dependentRequired"
        else:
            keyword = "dependentSchemas"
        known: Any = node.get(keyword)
        node[keyword] = {**(cast("Mapping[str, Any]", known) if isinstance(known, Mapping) else {}), name: wanted}


def _type(node: dict[str, Any], note: Note) -> None:
    _known_types(node, note)
    accept_null(node)


def accept_null(node: dict[str, Any]) -> None:
    """Rewrite `nullable` of OpenAPI 3.0 at one level of a schema, in place: null is then one of its types."""
    if node.pop("nullable", False) is not True:
        return
    if "type" not in node:
        _add_null_branch(node)
        return
    kinds = types_of(node)
    node["type"] = list(kinds) if "null" in kinds else [*kinds, "null"]
    if isinstance(values := node.get("enum"), list) and None not in values:
        node["enum"] = [*cast("list[Any]", values), None]


def _add_null_branch(node: dict[str, Any]) -> None:
    """Add null to a schema without a type, in place: as a value of its `enum`, or as an alternative to all the rest."""
    constraints = {key: node[key] for key in node if (key in KEYWORDS or key == "$ref") and key not in ANNOTATIONS}
    if constraints.keys() == {"enum"} and isinstance(constraints["enum"], list):
        node["enum"] = list(dict.fromkeys([*cast("list[Any]", node["enum"]), None]))
    elif constraints.keys() == {"anyOf"} and isinstance(constraints["anyOf"], list):
        node["anyOf"] = [*cast("list[Any]", node["anyOf"]), {"type": "null"}]
    elif constraints:
        for key in constraints:
            del node[key]
        node["anyOf"] = [constraints, {"type": "null"}]


def _impossible_branches(node: dict[str, Any]) -> None:
    """Remove the alternatives that no value fits, in place; a single one that is left stands for itself."""
    for keyword in ("anyOf", "oneOf"):
        branches: Any = node.get(keyword)
        if not isinstance(branches, list):
            continue
        listed = cast("list[Any]", branches)
        possible = [one for one in listed if not _is_impossible(one)]
        if not possible or len(possible) == len(listed):
            continue
        node[keyword] = possible
        only: Any = possible[0]
        if len(possible) == 1 and isinstance(only, Mapping):
            branch = {key: value for key, value in cast("Mapping[str, Any]", only).items() if key not in _IDENTITY}
            described = {key for key in branch if key in ("description", "title")}
            if not (branch.keys() - described) & node.keys():
                del node[keyword]
                node |= {key: value for key, value in branch.items() if key not in node}


def _is_impossible(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return schema is False
    return cast("Mapping[str, Any]", schema).get("not", False) in ({}, True)


def _known_types(node: dict[str, Any], note: Note) -> None:
    if "type" not in node:
        return
    given: Any = node.pop("type")
    if isinstance(given, list):
        names = cast("list[Any]", given)
    else:
        names = [given]
    kinds: list[str] = []
    for name in names:
        if isinstance(name, str) and name in _TYPES:
            meant = name
        else:
            meant = _MEANT.get(str(name).lower(), "")
        if meant != name:
            note(ODD_TYPE.problem.format(str(name)[:40], meant or "any"))
        if not meant:
            return  # no type that it could be
        kinds.append(meant)
    kinds = list(dict.fromkeys(kinds))
    if kinds:
        node["type"] = kinds[0] if len(kinds) == 1 else kinds


def _required(node: dict[str, Any], note: Note) -> None:
    required = node.get("required")
    if isinstance(required, list):
        node["required"] = list(dict.fromkeys(name for name in cast("list[Any]", required) if isinstance(name, str)))
    elif "required" in node:  # draft 3
        del node["required"]
        note(OLD_REQUIRED.problem)


def _well_formed(key: str, value: Any) -> bool:
    if key in _TEXTS:
        return isinstance(value, str)
    if key in ONE_SCHEMA:
        return isinstance(value, (bool, Mapping))
    if key in MANY_SCHEMAS or key in ("enum", "examples"):
        return isinstance(value, list) and bool(value)  # pyright: ignore[reportUnknownArgumentType]
    if key in NAMED_SCHEMAS or key in DEFINITIONS:
        return isinstance(value, Mapping)
    if key == "dependentRequired":
        return isinstance(value, Mapping) and all(map(_is_names, cast("Mapping[str, Any]", value).values()))
    if key in _NUMBERS:
        return _is_number(value) and (key != "multipleOf" or value > 0)
    if key in _COUNTS:
        return _is_count(value)
    return not (key in _FLAGS and not isinstance(value, bool))


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)  # JSON has no infinity
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer() and value >= 0
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in cast("list[Any]", value))
