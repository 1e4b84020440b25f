"""Two versions of a tool, and a server that offers the older one."""

from __future__ import annotations

import asyncio

from toolweave import connect_mcp, create_mcp_server, tool


@tool(name="add", version="1.0", tags={"sums"})
def add_two(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(name="add", version="1.1", tags={"sums"})
def add_all(values: list[int]) -> int:
    """Add numbers."""
    return sum(values)


@tool(tags={"sums", "slow"})
def primes(below: int) -> list[int]:
    """Find the primes below a number."""
    return [n for n in range(2, below) if all(n % d for d in range(2, n))]


server = create_mcp_server("numbers", tools=[add_two, add_all, primes])
quick = create_mcp_server("numbers", tools=[add_two, add_all, primes], exclude_tags={"slow"}, versions="<1.1")


async def main() -> None:
    async with connect_mcp(server) as client:
        for each in await client.list_tools():
            print(each.name, each.spec.version, sorted(each.spec.tags))
        print((await client.call_tool("add", {"values": [1, 2, 3]})).text)
        print((await client.call_tool("add", {"a": 1, "b": 2}, version="1.0")).text)
    async with connect_mcp(quick) as client:
        print([(each.name, each.spec.version) for each in await client.list_tools()])


asyncio.run(main())
