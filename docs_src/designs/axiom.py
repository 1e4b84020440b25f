"""Axiom MCP: a server whose definitions, results, errors, progress and migration are what the protocol says."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Annotated

from pydantic import BaseModel, Field

from toolweave import CallContext, Progress, ToolError, connect_mcp, create_mcp_server, tool


class Plan(BaseModel):
    """What a task was split into."""

    subtasks: list[str]


@tool(name="spawn_v2", title="Split a task")
async def spawn(
    parent_prompt: Annotated[str, Field(description="The main task that is split into subtasks")],
    ctx: CallContext,
    count: Annotated[int, Field(ge=1, le=10)] = 2,
) -> Plan:
    """Split a task into subtasks."""
    if not parent_prompt.strip():
        raise ToolError("there is nothing to split: write what is to be done", code="EMPTY_TASK")
    await ctx.percent(50, "thinking")
    return Plan(subtasks=[f"{parent_prompt}, part {number}" for number in range(1, count + 1)])


async def main() -> None:
    server = create_mcp_server(name="axiom", version="4.0.0", tools=[spawn])
    server.alias("spawn", "spawn_v2", deprecated="use 'spawn_v2'", sunset=date(2027, 6, 30))

    async with connect_mcp(server) as client:
        definition = (await client.list_tools())["spawn_v2"]
        schema = definition.input_schema
        print(definition.spec.title, schema["required"], schema["additionalProperties"])

        def show(progress: Progress) -> None:
            print(progress.progress, "of", progress.total, progress.message)

        done = await client.call_tool("spawn_v2", {"parent_prompt": "weave"}, on_progress=show)
        print(done.is_error, done.structured_content)

        for arguments in ({"parent_prompt": " "}, {"parent_prompt": "weave", "count": 99}):
            failed = await client.call_tool("spawn_v2", arguments)
            print(failed.is_error, failed.text)


asyncio.run(main())
