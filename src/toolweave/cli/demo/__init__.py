"""Three small MCP servers that ship with the package, so that everything can be tried without a network.

Each is a few tools behind `create_mcp_server`. Their schemas are written out, not derived from signatures, so that a
process starts without pydantic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["READ_ONLY", "arguments_schema"]

READ_ONLY = {"readOnlyHint": True, "openWorldHint": False}
"""The annotations of a tool that changes nothing and reaches nothing outside of its server."""


def arguments_schema(properties: Mapping[str, Any], *, required: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments: these properties and no others."""
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": list(required)} if required else {})
