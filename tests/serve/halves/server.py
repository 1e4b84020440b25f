"""The server half by itself: serves one tool over stdio."""

from __future__ import annotations

import sys

from toolweave import create_mcp_server


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


create_mcp_server(name="sums", version="1", tools=[add]).run_stdio()
foreign = [name for name in sys.modules if name.startswith(("toolweave.connect", "toolweave.hub", "toolweave.cli"))]
assert not foreign, foreign
