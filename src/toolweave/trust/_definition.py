"""A tool's definition as MCP names its members, without private ones."""

from __future__ import annotations

from typing import Any

from toolweave.tools._spec import ToolSpec


def definition_of(spec: ToolSpec) -> dict[str, Any]:
    """Return the visible members of a tool's definition, and its promises: name, texts, schemas, annotations.

    That is as its producer gave it: rules of the user that shape it are not in there.
    """
    spec = spec.unshaped
    made: dict[str, Any] = {"name": spec.original_name, "description": spec.description}
    if spec.title is not None:
        made["title"] = spec.title
    made["inputSchema"] = spec.input_schema
    if spec.output_schema is not None:
        made["outputSchema"] = spec.output_schema
    if spec.annotations is not None:
        made["annotations"] = spec.annotations
    return made
