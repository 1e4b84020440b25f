"""Combinations of JSON Schemas put into one: the parts of an `allOf`, the alternatives of an `anyOf`. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolweave.schema._normalize import types_of

_LONGEST = 300
_SPOKEN = frozenset(("description", "title", "default", "examples"))
_DEFINED = frozenset(("$defs", "definitions"))


def joined(base: Mapping[str, Any], branches: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Merge `allOf` branches into one schema; also return the constraints it cannot express.

    The `allOf` of a branch is added to that of the result.
    """
    node = dict(base)
    lost = list[str]()
    for branch in branches:
        for key, value in branch.items():
            if key == "properties":
                node[key] = _properties(node.get(key, {}), value, "allOf")
            elif key == "required":
                node[key] = list(dict.fromkeys([*node.get(key, ()), *value]))
            elif key == "allOf":
                node[key] = [*node.get(key, ()), *value]
            elif key not in node:
                node[key] = value
            elif node[key] != value and key not in _SPOKEN | _DEFINED:
                if key == "type" and (kinds := _common(node[key], value)):
                    node[key] = kinds[0] if len(kinds) == 1 else kinds
                else:
                    lost.append(f"{key}: {as_text(value)}")
    names = set(node.get("properties", ()))
    if any(names - set(one.get("properties", ())) for one in (base, *branches) if not _is_open(one)):
        lost.append("additionalProperties: of one part")  # which the members of the others are, in the result
    return node, lost


def either(base: Mapping[str, Any], branches: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Return an object schema that accepts each of the alternatives, and the constraints it cannot express."""
    node = dict(base)
    always = set[str](node.get("required", ()))
    properties: Any = node.get("properties", {})
    forms: list[str] = []
    for branch in branches:
        properties = _properties(properties, branch.get("properties", {}), "anyOf")
        wanted = [name for name in cast("list[str]", branch.get("required", [])) if name not in always]
        fixed = [f"{name} = {as_text(part['const'])}" for name, part in _constants(branch)]
        forms.append(" and ".join(dict.fromkeys([*fixed, *wanted])))
    shared = set[str](branches[0].get("required", ())).intersection(*(one.get("required", ()) for one in branches[1:]))
    node["properties"] = properties
    kinds = [types_of(branch) for branch in branches]
    if all(kinds):
        node.setdefault("type", list(dict.fromkeys(name for names in kinds for name in names)))
    required = list(dict.fromkeys([*node.get("required", ()), *sorted(shared)]))
    if required:
        node["required"] = required
    # an object closed to other members was so in its own alternative only
    node.pop("additionalProperties", None)
    spoken = list(dict.fromkeys(form for form in forms if form))
    return node, [f"one of these forms: {'; or '.join(spoken)}"[:_LONGEST]] if len(spoken) > 1 else []


def as_text(value: Any) -> str:
    """Return a JSON value as short text."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}..."


def _is_open(node: Mapping[str, Any]) -> bool:
    return node.get("additionalProperties", True) is True


def _constants(branch: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    properties = cast("Mapping[str, Any]", branch.get("properties", {}))
    return [(name, part) for name, part in properties.items() if isinstance(part, Mapping) and "const" in part]


def _properties(known: Mapping[str, Any], more: Mapping[str, Any], keyword: str) -> dict[str, Any]:
    out = dict(known)
    for name, part in more.items():
        if name not in out or out[name] is True:
            out[name] = part
        elif out[name] != part and part is not True:
            out[name] = _with_branch(out[name], part, keyword)
    return out


def _with_branch(known: Any, part: Any, keyword: str) -> dict[str, Any]:
    """Combine `known` and `part` under `keyword`; a list of branches from an earlier call is extended."""
    if isinstance(known, dict) and len(cast("Any", known)) == 1:
        single = cast("dict[str, Any]", known)
    else:
        single = {}
    branches = single.get(keyword, [known])
    return {keyword: branches if part in branches else [*branches, part]}


def _common(one: Any, other: Any) -> list[str]:
    kinds = [one] if isinstance(one, str) else list(one)
    others = {other} if isinstance(other, str) else set(other)
    if "number" in others:
        others.add("integer")
    return [kind for kind in kinds if kind in others]
