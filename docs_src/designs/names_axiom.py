"""Axiom MCP: a tool with both schemas, structured results and coded errors."""

from __future__ import annotations

import asyncio
from typing import Annotated, TypedDict

from pydantic import Field

from toolweave import ToolError, ToolRegistry, tool


class Sum(TypedDict):
    """What `add` answers."""

    total: int


@tool(title="Add two numbers", annotations={"readOnlyHint": True})
def add(a: Annotated[int, Field(description="The first")], b: Annotated[int, Field(ge=0)] = 0) -> Sum:
    """Add two whole numbers."""
    if a > 1_000:
        raise ToolError("a is too large: at most 1000", code="TOO_LARGE")
    return {"total": a + b}


async def main() -> None:
    registry = ToolRegistry([add])
    print(add.input_schema["additionalProperties"])
    for arguments in ({"a": 1, "b": 2}, {"a": 1, "c": 3}, {"a": 5_000}):
        result = await registry.execute("add", arguments)
        print(result.structured_content, result.error.kind.value if result.error else "ok")


asyncio.run(main())
