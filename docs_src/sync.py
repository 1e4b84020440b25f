"""One server in plain code: list its tools, call one."""

from __future__ import annotations

from toolweave.sync import connect_mcp

with connect_mcp("python -m toolweave.cli.demo.numbers") as numbers:
    print(numbers.tools.names)
    result = numbers.call_tool("add", {"values": [1, 2, 39]})
    print(result.raise_for_error().data.sum)
