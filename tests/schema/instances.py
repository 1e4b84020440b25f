"""Values that a model could write for a JSON Schema: made of the schema alone, small, the same for the same seed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import Any, cast

from toolweave.schema._combining import joined
from toolweave.schema.limits import local_target
from toolweave.schema.normalize import types_of

__all__ = ["instance"]

Json = dict[str, Any]

DEEP = 6
"""Levels from which on only required members are made."""
DEEPEST = 24
TEXTS = (
    *("x", "abc", "2026-07-28", "12:30:00Z", "2026-07-28T12:30:00Z", "a@example.com", "https://example.com/x", "42"),
    *("12345678-1234-4234-8234-123456789abc", "0x" + "a" * 40, "192.0.2.1", "A1", "a-b", "a/b", "#aabbcc", "12.5", ""),
)
"""Texts that are tried where a pattern wants something."""


def instance(schema: Mapping[str, Any], seed: int, *, full: bool) -> Any:
    """Return a value for a schema: with all members, or with the required ones alone. It may not fit a pattern."""
    return _value(schema, schema, Random(seed), 0 if full else DEEP)


def _value(schema: Any, root: Mapping[str, Any], random: Random, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return "x"
    node: Mapping[str, Any] = _whole(cast("Json", schema), root)
    for keyword in ("anyOf", "oneOf"):
        if node.get(keyword):
            picked = _whole(random.choice(node[keyword]), root)
            beside = {key: value for key, value in node.items() if key != keyword}
            node = dict[str, Any](joined(beside, [picked])[0])
    if "const" in node:
        return node["const"]
    if node.get("enum"):
        return random.choice(node["enum"])
    kinds = types_of(node) or (("object",) if "properties" in node else ("string",))
    return _of_kind(random.choice(kinds), node, root, random, depth)


def _whole(schema: Any, root: Mapping[str, Any]) -> Json:
    """Return a schema with its references and the parts of its `allOf` in it."""
    node: Json = dict(schema) if isinstance(schema, Mapping) else {}  # pyright: ignore[reportUnknownArgumentType] - any JSON value
    for _ in range(DEEPEST):
        parts = [local_target(cast("Json", root), node.pop("$ref"))] if "$ref" in node else []
        parts += node.pop("allOf", [])
        if not parts:
            break
        node = joined(node, [cast("Json", part) for part in parts if isinstance(part, Mapping)])[0]
    return node


def _of_kind(kind: str, node: Json, root: Mapping[str, Any], random: Random, depth: int) -> Any:
    match kind:
        case "object":
            members: Json = node.get("properties", {})
            wanted = list(members) if depth < DEEP else [name for name in node.get("required", ()) if name in members]
            made = {
                name: _value(members[name], root, random, depth + 1) for name in wanted if members[name] is not False
            }
            return {**dict.fromkeys(node.get("required", ()), "x"), **made}
        case "array":
            return _items(node, root, random, depth)
        case "string":
            return _text(node, random)
        case "integer" | "number":
            return _number(node, kind)
        case "boolean":
            return random.choice((True, False))
        case _:
            return None


def _items(node: Json, root: Mapping[str, Any], random: Random, depth: int) -> list[Any]:
    listed: list[Any] = node.get("prefixItems", [])
    least = max(node.get("minItems", 0), len(listed), 1 if depth < DEEP else 0)
    parts = [*listed, *[node.get("items", {})] * max(0, least - len(listed))][: node.get("maxItems", least)]
    return [_value(part, root, random, depth + 1) for part in parts]


def _text(node: Json, random: Random) -> str:
    pattern = node.get("pattern")
    if pattern is not None:
        try:
            return next((text for text in TEXTS if re.search(pattern, text)), "x")
        except re.error:  # of another dialect than Python's
            return "x"
    least = node.get("minLength", 0)
    return (random.choice(TEXTS) * (least or 1))[: max(least, node.get("maxLength", 40))]


def _number(node: Json, kind: str) -> float:
    least = max(node.get("minimum", -1e9), node.get("exclusiveMinimum", -1e9) + 1)
    most = min(node.get("maximum", 1e9), node.get("exclusiveMaximum", 1e9) - 1)
    number = min(max(1, least), most)
    step = node.get("multipleOf", 0)
    if step:
        number = step * -(-number // step)
    return int(number) if kind == "integer" else number
