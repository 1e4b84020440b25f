"""A job that says why it did not succeed."""

from __future__ import annotations

from toolweave import ToolweaveError
from toolweave.sync import connect_mcp

try:
    with connect_mcp("python -m toolweave.cli.demo.numbers", name="numbers") as numbers:
        print(numbers.call_tool("divide", {"value": 42, "by": 6}).raise_for_error().text)
        print(numbers.call_tool("divide", {"value": 42, "by": 0}).raise_for_error().text)
except ToolweaveError as exc:
    print(f"{type(exc).__name__}: {exc}")
