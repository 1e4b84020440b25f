"""FastMCP's client: uses a server in every way and prints what it saw as JSON; runs in an environment of its own.

`fastmcp_client.py ERA TARGET [ARGUMENT...]`, where the target is a URL or a command.
"""

from __future__ import annotations

import asyncio
import json
import sys
from importlib import import_module
from typing import Any

fastmcp = import_module("fastmcp")
transports = import_module("fastmcp.client.transports")


async def fill_in(message: str, kind: Any, params: Any, context: Any) -> dict[str, str]:
    """Answer a form."""
    return {"name": "Ada"}


async def main(era: str, target: str, arguments: list[str]) -> dict[str, Any]:
    """Use the server."""
    progress: list[tuple[float, float | None]] = []

    async def report(done: float, total: float | None, message: str | None) -> None:
        progress.append((done, total))

    stdio = "://" not in target
    transport = transports.StdioTransport(command=target, args=arguments) if stdio else target
    mode = "legacy" if era == "legacy" else "auto"
    async with fastmcp.Client(transport, mode=mode, elicitation_handler=fill_in, timeout=60) as client:

        async def call(name: str, given: dict[str, Any], **options: Any) -> str:
            result = await client.call_tool(name, given, raise_on_error=False, **options)
            (block,) = result.content
            return block.text

        return {
            "version": client.protocol_version,
            "tools": [tool.name for tool in await client.list_tools()],
            "sum": await call("add", {"a": 2, "b": 3}),
            "counted": await call("count", {"to": 3}, progress_handler=report),
            "progress": progress,
            "greeting": await call("greet", {}),
            "failure": await call("fail", {}),
            "resource": (await client.read_resource("notes://notes/loom"))[0].text,
            "prompt": (await client.get_prompt("explain", {"topic": "weft"})).messages[0].content.text,
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))))
