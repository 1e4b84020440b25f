"""Axle: one server, a prefix, tools combined by the caller, each connection closed alone."""

from __future__ import annotations

import asyncio
from typing import Any

from toolweave import ConnectionClosedError, connect_mcp

notes_config: dict[str, Any] = {
    "transport": "stdio",
    "command": "python",
    "args": ["-m", "toolweave.cli.demo.notes"],
}
numbers_config: dict[str, Any] = {
    "transport": "stdio",
    "command": "python",
    "args": ["-m", "toolweave.cli.demo.numbers"],
}


async def main() -> None:
    notes = await connect_mcp(notes_config)
    numbers = await connect_mcp(numbers_config)
    try:
        tools = [*await notes.list_tools(prefix="notes"), *await numbers.list_tools(prefix="math")]
        print([tool.name for tool in tools])

        divide = next(tool for tool in tools if tool.original_name == "divide")
        failed = await divide.execute({"value": 1, "by": 0})
        print(failed.is_error, failed.text)
    finally:
        await notes.close()
        await numbers.close()

    try:
        await numbers.list_tools()
    except ConnectionClosedError as error:
        print(type(error).__name__)


asyncio.run(main())
