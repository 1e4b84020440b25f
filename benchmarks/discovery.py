"""What it costs to list many paged tools into a client's own kind of tool."""

from __future__ import annotations

from benchmarks.clients import Open, open_clients
from benchmarks.measure import Contender, Figure, compare, interleave

__all__ = ["discovery"]


def lister(client: Open, expected: int) -> Contender:
    """Return a contender that lists everything, every time."""

    async def run(operations: int) -> None:
        for _ in range(operations):
            count = await client.list_all()
            if count != expected:
                raise RuntimeError(f"{client.name} listed {count} tools instead of {expected}")

    return Contender(name=client.name, run=run)


async def discovery(rounds: int, quick: bool) -> list[Figure]:
    """Measure 1,000 and 10,000 tools of 1.7 kB in pages of 100, over stdio."""
    figures: list[Figure] = []
    for count in (1_000,) if quick else (1_000, 10_000):
        async with open_clients("stdio", "--tools", count) as clients:
            contenders = [lister(client, count + 2) for client in clients if client.name != "toolweave execute"]
            samples = await interleave(contenders, operations=1, rounds=min(rounds, 5))
            figures += compare("discovery", f"{count:,} tools", samples)
    return figures
