"""A value for a schema: the required members, and of each the simplest. Shares no line with the product."""

from __future__ import annotations

from typing import Any

__all__ = ["sample"]

_DEEPEST = 12


def sample(schema: Any, root: Any = None, depth: int = 0) -> Any:  # any JSON values
    """Return a value that fits most schemas of real documents."""
    root = schema if root is None else root
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return "x"
    node: Any = schema  # pyright: ignore[reportUnknownVariableType]
    if "$ref" in node:
        target: Any = root
        for part in node["$ref"].split("/")[1:]:
            target = target[part]
        return sample(target, root, depth + 1)
    known = next((node[word] for word in ("const", "default") if word in node), None)
    if known is not None or "enum" in node:
        return known if known is not None else node["enum"][0]
    for word in ("anyOf", "oneOf", "allOf"):
        if word in node:
            own = {name: one for name, one in node.items() if name != word}
            chosen = node[word] if word == "allOf" else node[word][:1]
            return _joined(own, [sample(one, root, depth + 1) for one in chosen], root, depth)
    kind = node.get("type", "object" if "properties" in node else "string")
    return _of_type(kind[0] if isinstance(kind, list) else kind, node, root, depth)


def _joined(own: Any, parts: list[Any], root: Any, depth: int) -> Any:
    if own.keys() & {"properties", "allOf", "anyOf", "oneOf"}:
        parts.append(sample(own, root, depth + 1))
    if not all(isinstance(part, dict) for part in parts):
        return parts[0]
    made: dict[str, Any] = {}
    for part in parts:
        made |= part
    return made


def _of_type(kind: Any, node: Any, root: Any, depth: int) -> Any:
    if kind == "object" and str(node.get("description", "")).startswith("A file:"):
        return {"text": "content", "filename": "a.txt"}
    if kind == "object":
        members = node.get("properties", {})
        wanted = node.get("required") or list(members)[:1]
        return {name: sample(members.get(name, {}), root, depth + 1) for name in wanted}
    if kind == "array":
        return [sample(node.get("items", {}), root, depth + 1)] * max(1, node.get("minItems", 0))
    if kind in ("integer", "number"):
        low = node.get("minimum", node.get("exclusiveMinimum", 0) + ("exclusiveMinimum" in node))
        return min(max(1, low), node.get("maximum", 10**9))
    if kind in ("boolean", "null"):
        return True if kind == "boolean" else None
    if "pattern" in node:
        return "a1" * 12 + ".json" * ("json" in node["pattern"])
    return ("x" * max(1, node.get("minLength", 0)))[: node.get("maxLength", 10**6)]
