"""The tools. These are examples: put yours in their place.

Names, descriptions and schemas come from the functions. An exception becomes an error
that the model reads; raise `ToolError` to choose its words.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from toolweave import CallContext, ToolError, tool

STOCK = {"apple": 12, "pear": 0}


@tool(annotations={"readOnlyHint": True})
def count_stock(
    item: Annotated[str, Field(description="What to count, such as apple")],
) -> dict[str, int]:
    """Count how many of an item are in stock."""
    if item not in STOCK:
        raise ToolError(f"no item {item!r}; there are {', '.join(STOCK)}")
    return {"count": STOCK[item]}


@tool(annotations={"readOnlyHint": True})
async def check_all(ctx: CallContext) -> dict[str, list[str]]:
    """Look at every item and say what has run out."""
    missing: list[str] = []
    for number, (item, count) in enumerate(STOCK.items(), start=1):
        await ctx.progress(number, len(STOCK), item)
        if not count:
            missing.append(item)
    return {"missing": missing}


# Functions, `Tool`s, connections and hubs of other servers:
TOOLS: list[Any] = [count_stock, check_all]
