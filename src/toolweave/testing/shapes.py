"""Toolweave's values as the JSON that a server of either era sends for them. Pure.

What an older revision cannot carry is left out (PROTOCOL 1.2): output schemas and structured content that are no
objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolweave.protocol.content import block_json
from toolweave.tools import ToolResult, ToolSpec

__all__ = ["Json", "as_object", "result_json", "tool_json"]

Json = dict[str, Any]


def as_object(value: Any) -> Json:
    """Return a JSON object, or an empty one for what is none."""
    return cast("Json", value) if isinstance(value, dict) else {}


def tool_json(spec: ToolSpec, *, modern: bool) -> Json:
    """Return a tool's entry of `tools/list`; unknown members of a foreign definition survive."""
    entry: Json = {**spec.raw, "name": spec.name, "inputSchema": spec.input_schema}
    output = spec.output_schema
    if not modern and not (isinstance(output, Mapping) and output.get("type") == "object"):
        output = None
        entry.pop("outputSchema", None)
    told = {
        "title": spec.title,
        "description": spec.description or None,
        "outputSchema": output,
        "annotations": spec.annotations,
        "icons": list(spec.icons) or None,
        "_meta": spec.meta or None,
    }
    return entry | {key: value for key, value in told.items() if value is not None}


def result_json(result: ToolResult, *, modern: bool, structured: bool = False) -> Json:
    """Return the result of `tools/call`; `structured` sends structured content even where it is null."""
    answer: Json = {"content": [block_json(block) for block in result.content]}
    data = result.structured_content
    if (data is not None or (structured and not result.is_error)) and (modern or isinstance(data, Mapping)):
        answer["structuredContent"] = data
    if result.is_error:
        answer["isError"] = True
    if result.meta:
        answer["_meta"] = dict(result.meta)
    return answer
