"""What a server says of its tools reaches an agent of another framework: approvals, instructions, progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, ModelRequest, RunContext
from pydantic_ai.models.test import TestModel

from toolweave import CallContext, connect_mcp, create_mcp_server
from toolweave.export import pydantic_ai_toolset

server = create_mcp_server(name="shop", version="1", instructions="Prices are in euros.")


@server.tool(annotations={"destructiveHint": True})
async def order(item: str, context: CallContext) -> str:
    """Order something."""
    await context.progress(1, 2, "it is packed")
    return f"{item} is ordered"


async def show(ctx: RunContext[Any], events: AsyncIterable[Any]) -> None:
    async for event in events:
        if getattr(event, "name", None) == "toolweave_progress":
            print(event.tool_name, event.progress, "of", event.total, event.message)


async def main() -> None:
    async with connect_mcp(server, name="shop") as shop:
        toolset = pydantic_ai_toolset(shop, confirm="destructive", include_instructions=True)
        agent = Agent(TestModel(), toolsets=[toolset], output_type=[str, DeferredToolRequests])

        asked = await agent.run("Order something.")
        print(next(one.instructions for one in asked.all_messages() if isinstance(one, ModelRequest)))
        assert isinstance(asked.output, DeferredToolRequests)
        print([call.tool_name for call in asked.output.approvals])

        answers = asked.output.build_results(approve_all=True)
        history = asked.all_messages()
        result = await agent.run(message_history=history, deferred_tool_results=answers, event_stream_handler=show)
        print(result.output)


asyncio.run(main())
