"""An upstream whose calls become tasks, or are only slow; each ends when a file of its name is there."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import anyio

from toolweave import CallContext, McpServer, ToolError, create_mcp_server

FOLDER = Path(sys.argv[1])
server: McpServer = create_mcp_server(
    name="kitchen", version="1", tasks=dict.fromkeys(("cook", "burn", "ask"), "required")
)


@dataclass
class Wish:
    """An answer of the user."""

    dish: str


async def released(name: str) -> None:
    while not (FOLDER / name).exists():
        await anyio.sleep(0.02)


@server.tool
async def cook(name: str, ctx: CallContext) -> str:
    """Cook as a task."""
    await ctx.progress(1, 2, "<b>half</b> done\u202e")
    await released(name)
    return "a secret dish"


@server.tool
async def burn() -> str:
    """Fail as a task."""
    raise ToolError("it is <i>black</i>")


@server.tool
async def ask(ctx: CallContext) -> str:
    """Ask as a task."""
    answer = await ctx.elicit("What shall it be?", Wish)
    return answer.value.dish if answer.value else "nothing"


@server.tool
async def simmer(name: str) -> str:
    """Take long, and be no task."""
    await released(name)
    return "soup"


if __name__ == "__main__":
    (FOLDER / "pid").write_text(str(os.getpid()))
    server.run_stdio()
