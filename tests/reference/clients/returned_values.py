"""The clients of the official Python SDK and of FastMCP: call every tool and print what they got, as JSON.

`returned_values.py sdk|fastmcp ERA TARGET [ARGUMENT...]`, where the target is a URL or a command. Both clients check
structured content against the output schema of its tool.
"""

from __future__ import annotations

import asyncio
import json
import sys
from importlib import import_module
from typing import Any


def jsonable(value: Any) -> Any:
    """Return a value with the objects in it as JSON."""
    return import_module("pydantic_core").to_jsonable_python(value, serialize_unknown=True)


async def with_sdk(mode: str, target: str, arguments: list[str]) -> dict[str, Any]:
    """Call every tool with the SDK's client."""
    mcp = import_module("mcp")
    server = target if "://" in target else mcp.StdioServerParameters(command=target, args=arguments)
    seen: dict[str, Any] = {}
    async with mcp.Client(server, mode=mode) as client:
        for tool in (await client.list_tools()).tools:
            result = await client.call_tool(tool.name, {})
            assert not result.is_error, (tool.name, result)
            seen[tool.name] = {"structured": result.structured_content, "schema": tool.output_schema}
    return seen


async def with_fastmcp(mode: str, target: str, arguments: list[str]) -> dict[str, Any]:
    """Call every tool with FastMCP's client, whose `data` is the typed value."""
    transports = import_module("fastmcp.client.transports")
    transport = target if "://" in target else transports.StdioTransport(command=target, args=arguments)
    seen: dict[str, Any] = {}
    async with import_module("fastmcp").Client(transport, mode=mode, timeout=60) as client:
        for tool in await client.list_tools():
            result = await client.call_tool(tool.name, {})
            seen[tool.name] = {
                "structured": result.structured_content,
                "data": jsonable(result.data),
                "schema": getattr(tool, "output_schema", None) or getattr(tool, "outputSchema", None),
            }
    return seen


if __name__ == "__main__":
    use = {"sdk": with_sdk, "fastmcp": with_fastmcp}[sys.argv[1]]
    mode = "legacy" if sys.argv[2] == "legacy" else "auto"
    print(json.dumps(asyncio.run(use(mode, sys.argv[3], sys.argv[4:]))))
