"""Content blocks as JSON, in the shape the MCP specification gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolweave.tools.result import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

__all__ = ["block_json", "resource_json"]


def block_json(block: ContentBlock) -> Mapping[str, Any]:
    """Return a block as it came from the server, or made from its fields when it came from here."""
    if block.raw:
        return block.raw
    made: dict[str, Any] = {"type": block.type}
    match block:
        case TextContent():
            made["text"] = block.text
        case ImageContent() | AudioContent():
            made |= {"data": block.data, "mimeType": block.mime_type}
        case ResourceLink():
            made |= {"uri": block.uri, "name": block.name}
        case EmbeddedResource():
            made["resource"] = resource_json(block)
        case _:
            pass
    return made


def resource_json(block: EmbeddedResource) -> Mapping[str, Any]:
    """Return the contents of a resource as the specification writes them."""
    members = {"uri": block.uri, "mimeType": block.mime_type, "text": block.text, "blob": block.blob}
    return {name: value for name, value in members.items() if value is not None}
