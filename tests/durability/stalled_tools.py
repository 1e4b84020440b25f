"""Tools for a process that dies while their first calls run."""

from __future__ import annotations

from typing import Any

import anyio

from toolweave import tool
from toolweave.tools import FunctionTool

__all__ = ["stalled_tools"]


def stalled_tools(calls: list[str]) -> list[FunctionTool[[], Any]]:
    """Return `look`, which is read-only, and `pay`; the first two calls of either never end, and `calls` has all."""

    async def act(name: str) -> str:
        calls.append(name)
        if len(calls) <= 2:
            await anyio.sleep_forever()
        return f"{name} is done"

    @tool(annotations={"readOnlyHint": True})
    async def look() -> str:
        """Look."""
        return await act("look")

    @tool
    async def pay() -> str:
        """Pay."""
        return await act("pay")

    return [look, pay]
