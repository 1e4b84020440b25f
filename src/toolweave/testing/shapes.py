"""Toolweave's values as the JSON that a server of either era sends for them. Pure.

What an older revision cannot carry is left out (PROTOCOL 1.2): output schemas and structured content that are no
objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolweave.tools import ContentBlock, ToolResult, ToolSpec

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
    answer: Json = {"content": [_block(block) for block in result.content]}
    data = result.structured_content
    if (data is not None or (structured and not result.is_error)) and (modern or isinstance(data, Mapping)):
        answer["structuredContent"] = data
    if result.is_error:
        answer["isError"] = True
    if result.meta:
        answer["_meta"] = dict(result.meta)
    return answer


_MEMBERS = {
    "text": {"text": "text"},
    "image": {"data": "data", "mime_type": "mimeType"},
    "audio": {"data": "data", "mime_type": "mimeType"},
    "resource_link": {
        "uri": "uri",
        "name": "name",
        "title": "title",
        "description": "description",
        "mime_type": "mimeType",
        "size": "size",
    },
}
_RESOURCE = {"uri": "uri", "mime_type": "mimeType", "text": "text", "blob": "blob"}


def _block(block: ContentBlock) -> Json:
    if block.raw:
        return dict(block.raw)
    made: Json = {"type": block.type}
    if block.type == "resource":
        made["resource"] = _members(block, _RESOURCE)
    else:
        made |= _members(block, _MEMBERS.get(block.type, {}))
    if block.annotations is not None:
        made["annotations"] = dict(block.annotations)
    if block.meta:
        made["_meta"] = dict(block.meta)
    return made


def _members(block: ContentBlock, names: Mapping[str, str]) -> Json:
    return {theirs: value for ours, theirs in names.items() if (value := getattr(block, ours)) is not None}
