"""Rewritings of one level of a JSON Schema for an LLM API that need nothing but that level. Pure.

`_lowering.py` walks the schema and decides; these functions know no API and no profile.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from toolweave.providers._strict import types_of_values
from toolweave.schema._combining import as_text
from toolweave.schema._json_values import JsonValue, SchemaNode, SchemaView, listed, members, text
from toolweave.schema.normalize import CONSTRAINTS, type_keyword

_MAX_NAME = 56
"""Characters of a new name for an argument, so that a number behind it keeps it within 64."""
_ILLEGAL = re.compile(r"[^A-Za-z0-9_.-]")


def renamed(names: list[str], new_names: Mapping[str, str]) -> list[JsonValue]:
    return [new_names.get(name, name) for name in names]


def bound_items(node: SchemaNode) -> None:
    """Replace `items: false` in place: an array has as many items as `prefixItems` has schemas."""
    del node["items"]
    maximum = len(listed(node, "prefixItems"))
    stricter = node.get("maxItems")
    if isinstance(stricter, (int, float)):
        node["maxItems"] = min(maximum, stricter)
    else:
        node["maxItems"] = maximum


def turn_into_enum(node: SchemaNode) -> None:
    """Replace `const` by an `enum` of one value, in place, and name the type of the values."""
    if "const" in node and "enum" not in node:
        node["enum"] = [node.pop("const")]
    if "enum" in node and node.keys().isdisjoint(("type", "$ref")):
        node["type"] = type_keyword(types_of_values(listed(node, "enum")))


def legal_name(name: str, taken: Collection[str]) -> str:
    """Return a name for an argument with the letters of the original one, unlike those that are taken."""
    wanted = _ILLEGAL.sub("_", name).strip("_")[:_MAX_NAME] or "argument"
    found = wanted
    number = 1
    while found in taken:
        number += 1
        found = f"{wanted}_{number}"
    return found


def anchors_of(node: SchemaView) -> list[str]:
    """Return the names of a subschema; before 2019-09 an anchor was an `$id` that is a fragment."""
    names: list[str] = []
    anchor = text(node, "$anchor")
    identifier = text(node, "$id")
    if anchor is not None:
        names.append(anchor)
    if identifier is not None and identifier.startswith("#"):
        names.append(identifier[1:])
    return names


def with_lost_constraints(out: SchemaNode, lost: list[str], *, beside_ref: bool) -> SchemaNode:
    """Return a lowered schema with the lost constraints in its description, in parentheses and each once."""
    if lost:
        in_words = f"({'; '.join(dict.fromkeys(lost))})"
        out["description"] = f"{out['description']} {in_words}" if out.get("description") else in_words
    # These APIs refuse or ignore what stands beside `$ref`.
    if "$ref" in out and len(out) > 1 and not beside_ref:
        return {"anyOf": [{"$ref": out.pop("$ref")}], **out}
    return out


def widen(node: SchemaNode, lost: list[str]) -> None:
    """Replace schemas of single items by one that is any of them, in place."""
    positions = listed(node, "prefixItems")
    del node["prefixItems"]
    lost.append(f"prefixItems: {as_text(positions)}")
    rest = node.get("items")
    if isinstance(rest, Mapping):
        positions = [*positions, rest]
    kinds: list[JsonValue] = []
    for one in positions:
        if one not in kinds:
            kinds.append(one)
    node["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def constrains(node: SchemaView) -> bool:
    """Return whether a schema constrains values by more than a reference."""
    return not CONSTRAINTS.isdisjoint(node)


def lone_reference(parts: list[JsonValue]) -> str | None:
    """Return the reference of an `allOf` that is one reference and nothing else."""
    only = members(parts[0])
    if len(parts) == 1 and len(only) == 1:
        return text(only, "$ref")
    return None


def is_plain_value(value: JsonValue) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def last_part(reference: str) -> str:
    return _ILLEGAL.sub("_", reference.rpartition("/")[2].lstrip("#"))[:48]


def copied(value: JsonValue) -> JsonValue:
    if isinstance(value, Mapping):
        return {key: copied(one) for key, one in value.items()}
    if isinstance(value, list):
        return list(map(copied, value))
    return value


def escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
