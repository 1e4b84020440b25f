"""A server with many tools: what its start, one page of its list and one call cost, beside a server with few.

In process and without a carrier, so that nothing else is in the figures; a page has 100 tools in both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.measure import Figure, Sample, compare
from benchmarks.settings import Settings

__all__ = ["catalog"]

FEW, MANY = 200, 10_000
TURNS = 200


class Nobody:
    """The way back to a client that is not there."""

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Drop it."""

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Refuse."""
        raise NotImplementedError

    async def release(self) -> None:
        """Do nothing."""


def made(count: int) -> tuple[Any, float]:
    """Return a server with so many tools, and the seconds that it took beyond the tools themselves."""
    from toolweave import ToolRegistry, create_mcp_server, tool

    async def echo(arguments: Mapping[str, Any]) -> str:
        return str(arguments["text"])

    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    described = "Say a text again, in a sentence that is about as long as they are."
    registry = ToolRegistry(
        [tool(echo, name=f"tool_{number}", description=described, input_schema=schema) for number in range(count)]
    )
    begun = time.process_time()
    return create_mcp_server(name="many", version="1", tools=registry), time.process_time() - begun


async def per_request(server: Any, method: str, params: Callable[[int], dict[str, Any]]) -> float:
    """Return the CPU seconds of one request."""
    from toolweave.serve.request import Client, Request

    client = Client("2026-07-28")
    begun = time.process_time()
    for number in range(TURNS):
        await server.endpoint.answer(
            Request(method=method, params=params(number), client=client, reply_channel=Nobody(), id=number)
        )
    return (time.process_time() - begun) / TURNS


async def measure(count: int) -> dict[str, float]:
    """Return the CPU seconds of each thing that is done with a server of so many tools."""
    from toolweave.serve.request import Client, Request

    server, start = made(count)
    request = Request(method="tools/list", params={}, client=Client("2026-07-28"), reply_channel=Nobody(), id=0)
    begun = time.process_time()
    first = await server.endpoint.answer(request)
    listed = time.process_time() - begun
    cursor: str = first["nextCursor"]
    last = f"tool_{count - 1}"
    call: dict[str, Any] = {"name": last, "arguments": {"text": "x"}}
    return {
        "start, a tool": start / count,
        "first page": listed,
        "another page": await per_request(server, "tools/list", lambda _: {"cursor": cursor}),
        "a call": await per_request(server, "tools/call", lambda _: call),
    }


def catalog(settings: Settings) -> list[Figure]:
    """Measure servers of both sizes in turn."""
    cases: dict[str, dict[str, list[Sample]]] = {}
    for _ in range(min(settings.rounds, 5)):
        for count in (FEW, MANY):
            for case, seconds in asyncio.run(measure(count)).items():
                rows = cases.setdefault(case, {}).setdefault(f"{count:,} tools", [])
                rows.append(Sample(cpu=seconds, wall=seconds))
    return [
        figure
        for case, samples in cases.items()
        if settings.wants(title := f"served catalog: {case}")
        for figure in compare("catalog", title, samples, baseline=f"{FEW:,} tools")
    ]
