"""The same names for plain code: nothing to await."""

from __future__ import annotations

from toolweave.sync import connect_mcp

with connect_mcp("python -m toolweave.cli.demo.numbers") as numbers:
    for tool in numbers.tools:
        print(tool.name)
    result = numbers.call_tool("add", {"values": [1, 2, 39]})
    print(result.raise_for_error().data.sum)
