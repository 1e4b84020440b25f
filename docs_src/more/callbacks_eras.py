"""What a server is told of roots, and what becomes of a question that no callback answers, in both eras."""

from __future__ import annotations

import asyncio

from toolweave import Callbacks, ProtocolError, connect_mcp
from toolweave.testing import stdio_server_command


# region eras
async def visit(revision: str) -> None:
    command = stdio_server_command("--asks", "--version", revision)
    async with connect_mcp(command, name="nosy", callbacks=Callbacks(roots=["/srv/data"])) as nosy:
        print(nosy.protocol_version)
        heard = (await nosy.call_tool("list_roots")).structured_content  # what this server heard of its question
        print(heard["result"]["roots"])
        try:
            heard = (await nosy.call_tool("elicit")).structured_content
            print("the server was told:", heard["error"]["message"])
        except ProtocolError as error:
            print("the call failed:", error)


async def main() -> None:
    await visit("2025-11-25")
    await visit("2026-07-28")


# endregion
asyncio.run(main())
