"""Tasks that any replica answers about, and that workers run."""

from __future__ import annotations

import asyncio

from toolweave import Backend, CallContext, connect_mcp, create_mcp_server, tool
from toolweave.serve import TaskRule


@tool(annotations={"idempotentHint": True})
async def index(ctx: CallContext) -> str:
    """Count everything."""
    await ctx.progress(1, total=2)
    return "42 things"


@tool
async def charge(amount: int) -> str:
    """Take money."""
    return f"took {amount}"


backend = Backend.from_environment()  # TOOLWEAVE_BACKEND=redis://host/0; in this process without it
server = create_mcp_server(
    name="slow",
    version="1.0.0",
    tools=[index, charge],
    tasks={"index": "optional", "charge": TaskRule("optional", on_lost="fail")},
    backend=backend,
)


async def main() -> None:
    async with backend, asyncio.TaskGroup() as tasks:
        worker = tasks.create_task(backend.queue.work(server.handlers()))  # or: toolweave worker slow:server
        async with connect_mcp(server) as client:
            print((await client.call_tool("index")).text)
        worker.cancel()


asyncio.run(main())
