"""The demo server `numbers`: arithmetic, revision 2026-07-28; over HTTP in the demo, over stdio as a program."""

from __future__ import annotations

import anyio

from toolweave._json_types import Json
from toolweave.cli.demo import READ_ONLY, arguments_schema
from toolweave.errors import ToolError
from toolweave.protocol.versions import MODERN_VERSION
from toolweave.serve import McpServer, create_mcp_server
from toolweave.tools import CallContext, tool

__all__ = ["numbers_server"]


MOST = 10_000
_NUMBER = {"type": "number"}
_VALUES = {"type": "array", "items": _NUMBER, "description": "The numbers to add"}
_LIMIT = {"type": "integer", "description": "Count the primes up to here", "minimum": 2, "maximum": MOST}
_STEPS = 20


@tool(
    input_schema=arguments_schema({"values": _VALUES}, required=("values",)),
    output_schema={"type": "object", "properties": {"sum": _NUMBER}, "required": ["sum"]},
    annotations=READ_ONLY,
)
async def add(arguments: Json) -> Json:
    """Add numbers."""
    return {"sum": sum(arguments["values"])}


@tool(input_schema=arguments_schema({"value": _NUMBER, "by": _NUMBER}, required=("value", "by")), annotations=READ_ONLY)
async def divide(arguments: Json) -> Json:
    """Divide one number by another."""
    if arguments["by"] == 0:
        raise ToolError("division by zero: choose another `by`")
    return {"quotient": arguments["value"] / arguments["by"]}


def numbers_server(*, pause: float = 0.05) -> McpServer:
    """Return a calculator; `pause` is how many seconds each of the 20 steps of `primes` takes."""

    @tool(input_schema=arguments_schema({"limit": _LIMIT}, required=("limit",)), annotations=READ_ONLY)
    async def primes(arguments: Json, ctx: CallContext) -> Json:
        """Count primes, slowly, with progress."""
        limit = int(arguments["limit"])
        found: list[int] = []
        for step in range(_STEPS):
            low = 2 + (limit - 1) * step // _STEPS
            high = 2 + (limit - 1) * (step + 1) // _STEPS
            found += [n for n in range(low, high) if all(n % d for d in range(2, int(n**0.5) + 1))]
            await anyio.sleep(pause)
            await ctx.progress(step + 1, _STEPS, f"up to {high - 1}")
        return {"count": len(found), "largest": found[-1]}

    server = create_mcp_server(
        "toolweave-demo-numbers",
        "1.0.0",
        instructions="Arithmetic for those who can wait.",
        tools=[add, divide, primes],
        ttl_ms=60_000,
    )
    server.speak(MODERN_VERSION)
    return server


if __name__ == "__main__":
    numbers_server().run()
