"""Combinations of JSON Schemas put into one: the parts of an `allOf`, the alternatives of an `anyOf`. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from toolweave.schema._json_values import JsonValue, SchemaNode, SchemaView, listed, members, named, texts
from toolweave.schema.normalize import type_keyword, types_of

_MAX_TEXT = 300
"""Characters of a value or of alternatives in a text."""
_NEITHER_JOINED_NOR_LOST = frozenset(("description", "title", "default", "examples", "$defs", "definitions"))
"""Keywords of which the first part's is kept: they constrain nothing."""


def joined(base: SchemaView, branches: Sequence[SchemaView]) -> tuple[SchemaNode, list[str]]:
    """Merge `allOf` branches into one schema; also return the constraints it cannot express.

    The `allOf` of a branch is added to that of the result.
    """
    node = dict(base)
    lost: list[str] = []
    for branch in branches:
        for key, value in branch.items():
            lost += _join_keyword(node, key, value)
    names = named(node, "properties").keys()
    for part in (base, *branches):
        if part.get("additionalProperties", True) is True:
            continue
        if not names <= named(part, "properties").keys():
            # A closed part refuses the members of the other parts, which are members of the result.
            lost.append("additionalProperties: of one part")
            break
    return node, lost


def _join_keyword(node: SchemaNode, key: str, value: JsonValue) -> list[str]:
    """Add a keyword of another part of an `allOf`, in place; return the constraint if it cannot be expressed."""
    if key == "properties":
        node[key] = _properties(named(node, key), members(value), "allOf")
    elif key == "required":
        node[key] = list(dict.fromkeys([*texts(node, key), *texts({key: value}, key)]))
    elif key == "allOf":
        node[key] = [*listed(node, key), *listed({key: value}, key)]
    elif key not in node:
        node[key] = value
    elif node[key] != value and key not in _NEITHER_JOINED_NOR_LOST:
        kinds = _common(node[key], value) if key == "type" else []
        if not kinds:
            return [f"{key}: {as_text(value)}"]
        node[key] = type_keyword(kinds)
    return []


def either(base: SchemaView, branches: Sequence[SchemaView]) -> tuple[SchemaNode, list[str]]:
    """Return an object schema that accepts each of the alternatives, and the constraints it cannot express."""
    node = dict(base)
    always = texts(node, "required")
    properties = named(node, "properties")
    shared = set(texts(branches[0], "required"))
    kinds: list[str] = []
    forms: dict[str, None] = {}
    for branch in branches:
        required = texts(branch, "required")
        properties = _properties(properties, named(branch, "properties"), "anyOf")
        shared &= set(required)
        kinds += types_of(branch)
        wanted = [name for name in required if name not in always]
        forms[" and ".join(dict.fromkeys([*_constants(branch), *wanted]))] = None
    node["properties"] = properties
    if all(map(types_of, branches)):
        node.setdefault("type", list(dict.fromkeys(kinds)))
    if always or shared:
        node["required"] = list(dict.fromkeys([*always, *sorted(shared)]))
    # An object closed to other members was so in its own alternative only.
    node.pop("additionalProperties", None)
    described = list(filter(None, forms))
    if len(described) < 2:
        return node, []
    return node, [f"one of these forms: {'; or '.join(described)}"[:_MAX_TEXT]]


def as_text(value: JsonValue) -> str:
    """Return a JSON value as short text."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}..."


def _constants(branch: SchemaView) -> list[str]:
    """Return the members with one possible value, each with its value as text."""
    found: list[str] = []
    for name, part in named(branch, "properties").items():
        if isinstance(part, Mapping) and "const" in part:
            found.append(f"{name} = {as_text(part['const'])}")
    return found


def _properties(known: SchemaView, more: SchemaView, keyword: str) -> SchemaNode:
    out = dict(known)
    for name, part in more.items():
        if name not in out or out[name] is True:
            out[name] = part
        elif out[name] != part and part is not True:
            out[name] = _with_branch(out[name], part, keyword)
    return out


def _with_branch(known: JsonValue, part: JsonValue, keyword: str) -> SchemaNode:
    """Combine `known` and `part` under `keyword`; a list of branches from an earlier call is extended."""
    branches = [known]
    if isinstance(known, dict) and list(known) == [keyword]:
        branches = listed(known, keyword)
    return {keyword: branches if part in branches else [*branches, part]}


def _common(one: JsonValue, other: JsonValue) -> list[str]:
    """Return the types of the first `type` that are also in the second one; an integer is a number."""
    others = set(types_of({"type": other}))
    if "number" in others:
        others.add("integer")
    return [kind for kind in types_of({"type": one}) if kind in others]
