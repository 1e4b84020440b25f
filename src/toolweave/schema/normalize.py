"""Normalization of one level of a JSON Schema of any draft to JSON Schema 2020-12. Pure; knows no provider.

Servers write draft 4, draft 7, OpenAPI and plain mistakes. Keywords with an equivalent in 2020-12 are rewritten,
malformed ones are dropped, and both are reported. Subschemas are left to the caller, which walks the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, TypeAlias, TypeGuard

from toolweave._json_types import as_integer, without_members
from toolweave._repairs import Repair
from toolweave.schema._json_values import JsonValue, SchemaNode, SchemaView, listed, named, texts
from toolweave.schema.limits import local_target

__all__ = [
    "ANNOTATIONS",
    "BAD_KEYWORD",
    "CONSTRAINTS",
    "DEFINITIONS",
    "KEYWORDS",
    "MALFORMED",
    "MANY_SCHEMAS",
    "NAMED_SCHEMAS",
    "NULLABLE",
    "ODD_TYPE",
    "OLD_REQUIRED",
    "ONE_SCHEMA",
    "Note",
    "accept_null",
    "constrains",
    "modern",
    "type_keyword",
    "types_of",
    "views",
]

Note: TypeAlias = Callable[[str], None]
"""A callback that receives each change as one phrase."""

MALFORMED = "is malformed and left out"
_SWITCH = '`"validate_input": false` checks nothing'
# The order of the steps in `modern` matters: keywords of old drafts are rewritten first, so that the check at the end
# sees those of 2020-12 alone, and null is added to a type after its spelling is known.
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
    problem="required is not a list and is left out",
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
_LISTS = frozenset((*MANY_SCHEMAS, "enum", "examples"))
_OBJECTS = frozenset((*NAMED_SCHEMAS, *DEFINITIONS))
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
"""Keywords that constrain a value, except `$ref`; others describe, identify, or are unknown."""
CONSTRAINTS = KEYWORDS - ANNOTATIONS


def modern(schema: SchemaView, note: Note) -> dict[str, Any]:
    """Return one level of a schema with the keywords of JSON Schema 2020-12, its subschemas unchanged.

    Identifiers (`$id`, `$schema`, ...) are removed; references are left to the caller.
    """
    node = without_members(schema, *_IDENTITY)
    _bounds(node)
    _tuples(node)
    _dependencies(node)
    _known_types(node, note)
    accept_null(node)
    _impossible_branches(node)
    _required(node, note)
    for key, value in list(node.items()):
        if not _well_formed(key, value):
            del node[key]
            note(BAD_KEYWORD.problem.format(key))
    return node


def types_of(node: SchemaView) -> tuple[str, ...]:
    """Return the types in a schema's `type`, none without one."""
    kind = node.get("type")
    if isinstance(kind, str):
        return (kind,)
    return tuple(texts(node, "type"))


def type_keyword(kinds: Sequence[str]) -> JsonValue:
    """Return types as the value of `type`: a single one as a string."""
    if len(kinds) == 1:
        return kinds[0]
    return list(kinds)


def views(schema: Any, root: Any) -> Iterator[Mapping[str, Any]]:  # any JSON values
    """Yield a schema and every other that applies to the same value: behind references of `root`, and alternatives.

    Each is yielded once, so that references in a circle end, and alternatives of alternatives do not multiply.
    """
    waiting: list[JsonValue] = [schema]
    # Identities and not values: two equal subschemas are two places. The root holds all of them, so no id is reused.
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Mapping) or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        found: list[JsonValue] = []
        if "$ref" in node:
            found.append(local_target(root, node["$ref"]))
        for keyword in ("allOf", "anyOf", "oneOf"):
            found += listed(node, keyword)
        # Reversed, as the last one of a stack is taken first: branches are yielded in their order.
        waiting += reversed(found)


def _bounds(node: SchemaNode) -> None:
    """Rewrite the bounds of draft 4, where `exclusiveMinimum` is a flag of `minimum`."""
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if not isinstance(node.get(exclusive), bool):
            continue
        if node.pop(exclusive) and bound in node:
            node[exclusive] = node.pop(bound)


def _tuples(node: SchemaNode) -> None:
    """Rewrite `items` with a list, as until draft 7, to `prefixItems`; `additionalItems` is for the items after it."""
    rest = node.pop("additionalItems", None)
    if isinstance(node.get("items"), list):
        items = node.pop("items")
        if items:
            node["prefixItems"] = items
        if rest is not None:
            node["items"] = rest


def _dependencies(node: SchemaNode) -> None:
    """Rewrite `dependencies`, which until draft 7 holds names and schemas alike."""
    for name, wanted in named(node, "dependencies").items():
        keyword = "dependentRequired" if isinstance(wanted, list) else "dependentSchemas"
        node[keyword] = {**named(node, keyword), name: wanted}
    node.pop("dependencies", None)


def accept_null(node: SchemaNode) -> None:
    """Rewrite `nullable` of OpenAPI 3.0 at one level of a schema, in place: null is then one of its types."""
    if node.pop("nullable", False) is not True:
        return
    if "type" not in node:
        _add_null_branch(node)
        return
    node["type"] = list(dict.fromkeys([*types_of(node), "null"]))
    values = node.get("enum")
    # `enum` restricts null like any other value, which `nullable` did not mean.
    if isinstance(values, list) and None not in values:
        node["enum"] = [*values, None]


def _add_null_branch(node: SchemaNode) -> None:
    """Add null to a schema without a type, in place: as a value of its `enum`, or as an alternative to all the rest."""
    constraints = {key: value for key, value in node.items() if constrains(key)}
    names = list(constraints)
    if names == ["enum"] and isinstance(node["enum"], list):
        values = node["enum"]
        node["enum"] = values if None in values else [*values, None]
    elif names == ["anyOf"] and isinstance(node["anyOf"], list):
        node["anyOf"] = [*node["anyOf"], {"type": "null"}]
    elif constraints:
        for key in constraints:
            del node[key]
        node["anyOf"] = [constraints, {"type": "null"}]


def constrains(keyword: str) -> bool:
    """Return whether a keyword constrains values, as those do that validators enforce, references included."""
    return keyword == "$ref" or keyword in CONSTRAINTS


def _impossible_branches(node: SchemaNode) -> None:
    """Remove the alternatives that no value fits, in place; a single one that is left stands for itself."""
    for keyword in ("anyOf", "oneOf"):
        branches = listed(node, keyword)
        possible = [one for one in branches if not _is_impossible(one)]
        # With no possible branch the schema takes no value, and its owner meant something: it stays as it is.
        if not possible or len(possible) == len(branches):
            continue
        node[keyword] = possible
        only = possible[0]
        if len(possible) == 1 and isinstance(only, Mapping):
            _put_in_place(node, keyword, only)


def _put_in_place(node: SchemaNode, keyword: str, branch: SchemaView) -> None:
    """Replace a union of one branch by the branch, in place, unless both have the same constraint."""
    own = without_members(branch, *_IDENTITY)
    if (own.keys() - {"description", "title"}).isdisjoint(node):
        del node[keyword]
        for key, value in own.items():
            node.setdefault(key, value)


def _is_impossible(schema: JsonValue) -> bool:
    if not isinstance(schema, Mapping):
        return schema is False
    return schema.get("not", False) in ({}, True)


def _known_types(node: SchemaNode, note: Note) -> None:
    if "type" not in node:
        return
    given = node.pop("type")
    names = given if isinstance(given, list) else [given]
    kinds: list[str] = []
    for name in names:
        meant = _meant_type(name)
        if meant != name:
            note(ODD_TYPE.problem.format(str(name)[:40], meant or "any"))
        if not meant:
            # One of the types may be any type, so that the others say nothing.
            return
        kinds.append(meant)
    if kinds:
        node["type"] = type_keyword(list(dict.fromkeys(kinds)))


def _meant_type(name: JsonValue) -> str:
    """Return the type that a name means; an empty string for any type."""
    if isinstance(name, str) and name in _TYPES:
        return name
    return _MEANT.get(str(name).lower(), "")


def _required(node: SchemaNode, note: Note) -> None:
    """Keep the names of `required`; a flag of one member, as in draft 3, is left out."""
    if isinstance(node.get("required"), list):
        node["required"] = list(dict.fromkeys(texts(node, "required")))
    elif "required" in node:
        del node["required"]
        note(OLD_REQUIRED.problem)


def _well_formed(key: str, value: JsonValue) -> bool:
    if key in _TEXTS:
        return isinstance(value, str)
    if key in ONE_SCHEMA:
        return isinstance(value, (bool, Mapping))
    if key in _LISTS:
        return isinstance(value, list) and bool(value)
    if key in _OBJECTS:
        return isinstance(value, Mapping)
    if key == "dependentRequired":
        return isinstance(value, Mapping) and all(map(_is_names, value.values()))
    if key in _NUMBERS or key in _COUNTS:
        return _is_number(value) and _is_in_range(key, value)
    if key in _FLAGS:
        return isinstance(value, bool)
    # Any value is well-formed for the rest: `const`, `default`, and keywords that nobody here knows.
    return True


def _is_in_range(key: str, value: float) -> bool:
    if key == "multipleOf":
        return value > 0
    if key in _NUMBERS:
        return True
    return value >= 0 and value % 1 == 0


def _is_number(value: JsonValue) -> TypeGuard[int | float]:
    if isinstance(value, float):
        return isfinite(value)  # JSON has no infinity
    return as_integer(value) is not None


def _is_names(value: JsonValue) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
