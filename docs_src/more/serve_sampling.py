"""A model of the server's answers for a client that has none."""

from __future__ import annotations

import asyncio

from toolweave import CallContext, ScriptedModel, connect_mcp, create_mcp_server
from toolweave.models import SamplingModel

model = SamplingModel(ScriptedModel(["a short text"]), max_tokens=500)  # or SamplingModel("openai:gpt-5-mini")
server = create_mcp_server("texts", sampling=model)


@server.tool
async def summarize(text: str, ctx: CallContext) -> str:
    """Summarize a text."""
    return (await ctx.sample(f"Summarize: {text}")).text


async def main() -> None:
    async with connect_mcp(server) as client:
        print((await client.call_tool("summarize", {"text": "a long text"})).text)


asyncio.run(main())
