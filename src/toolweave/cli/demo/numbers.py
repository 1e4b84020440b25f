"""The demo server `numbers`: arithmetic, revision 2026-07-28; HTTP in the demo, stdio as a program."""

from __future__ import annotations

import time

from toolweave.cli.demo.peer import DemoServer, DemoTool, Json, Report, ToolFailedError
from toolweave.cli.demo.stdio import serve_stdio

__all__ = ["numbers_server"]

MOST = 10_000


def numbers_server(*, pause: float = 0.05) -> DemoServer:
    """Return a calculator; `pause` is how many seconds each of the 20 steps of `primes` takes."""

    def add(arguments: Json, report: Report) -> Json:
        return {"sum": sum(arguments["values"])}

    def divide(arguments: Json, report: Report) -> Json:
        if arguments["by"] == 0:
            raise ToolFailedError("division by zero: choose another `by`")
        return {"quotient": arguments["value"] / arguments["by"]}

    def primes(arguments: Json, report: Report) -> Json:
        limit = int(arguments["limit"])
        if not 2 <= limit <= MOST:
            raise ToolFailedError(f"limit must be from 2 to {MOST}")
        found: list[int] = []
        for step in range(20):
            low, high = 2 + (limit - 1) * step // 20, 2 + (limit - 1) * (step + 1) // 20
            found += [n for n in range(low, high) if all(n % d for d in range(2, int(n**0.5) + 1))]
            time.sleep(pause)
            report(step + 1, 20, f"up to {high - 1}")
        return {"count": len(found), "largest": found[-1]}

    number = {"type": "number"}
    values = {"type": "array", "items": number, "description": "The numbers to add"}
    result: Json = {"type": "object", "properties": {"sum": number}, "required": ["sum"]}
    limit: Json = {"type": "integer", "description": "Count the primes up to here", "minimum": 2, "maximum": MOST}
    tools = [
        DemoTool("add", "Add numbers.", {"values": values}, add, ["values"], result),
        DemoTool("divide", "Divide one number by another.", {"value": number, "by": number}, divide, ["value", "by"]),
        DemoTool("primes", "Count primes, slowly, with progress.", {"limit": limit}, primes, ["limit"]),
    ]
    return DemoServer("numbers", tools, modern=True, instructions="Arithmetic for those who can wait.")


if __name__ == "__main__":
    serve_stdio(numbers_server())
