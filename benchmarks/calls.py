"""What one `tools/call` costs the client: per transport and size of the answer, and with structured output."""

from __future__ import annotations

from typing import Any

import anyio

from benchmarks.clients import TRANSPORTS, Open, open_clients
from benchmarks.measure import Contender, Figure, compare, interleave

__all__ = ["calls", "throughput"]

SIZES = {"100 B": (100, 200), "10 kB": (10_000, 100), "1 MB": (1_000_000, 4)}
"""Case -> bytes of text in the answer, calls in one round."""
CALLERS = 16


def repeated(client: Open, tool: str, arguments: dict[str, Any]) -> Contender:
    """Return a contender that calls one after the other."""

    async def run(operations: int) -> None:
        for _ in range(operations):
            await client.call(tool, arguments)

    return Contender(name=client.name, run=run)


def crowded(client: Open, arguments: dict[str, Any]) -> Contender:
    """Return a contender with many callers at once."""

    async def caller(operations: int) -> None:
        for _ in range(operations):
            await client.call("payload", arguments)

    async def run(operations: int) -> None:
        async with anyio.create_task_group() as group:
            for _ in range(CALLERS):
                group.start_soon(caller, operations // CALLERS)

    return Contender(name=client.name, run=run)


async def calls(rounds: int, quick: bool) -> list[Figure]:
    """Measure calls one after the other."""
    figures: list[Figure] = []
    for transport in TRANSPORTS:
        async with open_clients(transport) as clients:
            for size, (count, operations) in SIZES.items():
                if quick and size == "1 MB":
                    continue
                contenders = [repeated(client, "payload", {"size": count}) for client in clients]
                samples = await interleave(contenders, operations=operations, rounds=rounds)
                figures += compare("one call", f"{transport}, {size}", samples, operations=operations)
            if transport == "stdio":
                contenders = [repeated(client, "rows", {}) for client in clients]
                samples = await interleave(contenders, operations=100, rounds=rounds)
                figures += compare("one call", "stdio, 20 structured rows", samples, operations=100)
    return figures


async def throughput(rounds: int, quick: bool) -> list[Figure]:
    """Measure calls of many callers at once; the raw HTTP client takes one at a time and is left out."""
    figures: list[Figure] = []
    async with open_clients("stdio") as clients:
        contenders = [crowded(client, {"size": 100}) for client in clients]
        operations = CALLERS * (10 if quick else 40)
        samples = await interleave(contenders, operations=operations, rounds=rounds)
        figures += compare("many callers", f"stdio, 100 B, {CALLERS} callers", samples, operations=operations)
    return figures
