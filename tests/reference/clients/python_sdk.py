"""The official Python SDK's client: uses a server in every way and prints what it saw as JSON.

`python_sdk.py ERA TARGET [ARGUMENT...]`, where the target is a URL or a command.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
from mcp import Client, StdioServerParameters, types
from mcp.client.session import ClientRequestContext


async def fill_in(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Answer a form."""
    return types.ElicitResult(action="accept", content={"name": "Ada"})


async def main(era: str, target: str, arguments: list[str]) -> dict[str, Any]:
    """Use the server."""
    progress: list[tuple[float, float | None]] = []

    async def report(done: float, total: float | None, message: str | None) -> None:
        progress.append((done, total))

    server = target if "://" in target else StdioServerParameters(command=target, args=arguments)
    mode = "legacy" if era == "legacy" else "auto"
    async with Client(server, mode=mode, elicitation_callback=fill_in) as client:

        async def call(name: str, given: dict[str, Any], **options: Any) -> str:
            result = await client.call_tool(name, given, **options)
            (block,) = result.content
            assert isinstance(block, types.TextContent)
            return block.text

        resource = (await client.read_resource("notes://notes/loom")).contents[0]
        prompt = (await client.get_prompt("explain", {"topic": "weft"})).messages[0].content
        assert isinstance(resource, types.TextResourceContents)
        assert isinstance(prompt, types.TextContent)
        return {
            "version": client.protocol_version,
            "tools": [tool.name for tool in (await client.list_tools()).tools],
            "sum": await call("add", {"a": 2, "b": 3}),
            "counted": await call("count", {"to": 3}, progress_callback=report),
            "progress": progress,
            "greeting": await call("greet", {}),
            "failure": await call("fail", {}),
            "resource": resource.text,
            "prompt": prompt.text,
        }


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3:])))
