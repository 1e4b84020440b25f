"""A tool that reports progress, logs, asks the user and asks the client's language model, in both eras."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from toolweave import Callbacks, CallContext, Progress, connect_mcp, create_mcp_server
from toolweave.connect import ElicitationRequest, SamplingRequest

server = create_mcp_server(name="travel", version="1.0.0")


# region tool
@dataclass
class Wish:
    """What the user is asked for."""

    city: str
    nights: int = 2


@server.tool
async def plan(ctx: CallContext) -> str:
    """Plan a trip."""
    if not ctx.can("elicitation"):
        return "tell me a city"
    answer = await ctx.elicit("Where do you want to go?", Wish)
    if answer.value is None:
        return "stay at home, then"
    idea = await ctx.sample(f"One sight in {answer.value.city}, please.", max_tokens=100)
    await ctx.progress(1, total=1, message="planned")
    return f"{answer.value.nights} nights in {answer.value.city}: {idea.text}"


# endregion


def elicit(request: ElicitationRequest) -> dict[str, object]:
    print(f"asked: {request.message}")
    return {"city": "Oslo"}


def sample(request: SamplingRequest) -> str:
    return "the opera house"


def show(progress: Progress) -> None:
    print(f"{progress.progress:g} of {progress.total:g} {progress.message or ''}".rstrip())


async def main() -> None:
    callbacks = Callbacks(elicitation=elicit, sampling=sample)
    for revision in ("legacy", "2026-07-28"):
        async with connect_mcp({"server": server, "protocol": revision}, callbacks=callbacks) as travel:
            print(travel.protocol_version)
            print((await travel.call_tool("plan", on_progress=show)).text)
    async with connect_mcp(server) as travel:
        print((await travel.call_tool("plan")).text)


asyncio.run(main())
