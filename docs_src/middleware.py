"""Middleware of one's own around every request of a server."""

from __future__ import annotations

import asyncio
from typing import Any

from toolweave import connect_mcp
from toolweave.errors import RequestError
from toolweave.serve import CallNext, Request, create_mcp_server


async def only_in_the_day(request: Request, call_next: CallNext) -> dict[str, Any]:
    if request.method == "tools/call" and request.meta.get("acme/hour") == "night":
        raise RequestError("the shop is closed", code=-32000, data={"opens": "08:00"})
    return await call_next(request)


async def in_euros(request: Request, call_next: CallNext) -> dict[str, Any]:
    if request.method != "tools/call":
        return await call_next(request)
    arguments = {**request.object("arguments"), "currency": "EUR"}
    return await call_next(request.replace(params={**request.params, "arguments": arguments}))


def price(item: str, currency: str = "USD") -> str:
    """Say what something costs."""
    return f"{item}: 3.50 {currency}"


shop = create_mcp_server("shop", tools=[price], middleware=[only_in_the_day, in_euros])


async def main() -> None:
    async with connect_mcp(shop) as connection:
        result = await connection.call_tool("price", {"item": "tea"})
        print(result.text)


asyncio.run(main())
