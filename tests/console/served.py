"""The upstream of the console's tests: tools with arguments of every kind, results of every kind, and bad manners."""

from __future__ import annotations

import os
import sys
from typing import Any, Literal

from toolweave import create_mcp_server
from toolweave.errors import ToolError
from toolweave.protocol.content import ImageContent, TextContent
from toolweave.tools import ToolResult

HIDDEN = "\u202e\u200b"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

server = create_mcp_server(
    name=f"<b>{sys.argv[1]}</b>", version=sys.argv[2], instructions=f"Be kind.{HIDDEN}<script>alert(1)</script>"
)


@server.tool
def who() -> dict[str, object]:
    """Say who this is."""
    return {"name": sys.argv[1], "pid": os.getpid()}


@server.tool
def order(
    dish: str,
    count: int = 2,
    price: float | None = None,
    spicy: bool = False,
    size: Literal["small", "large"] = "small",
    extras: list[str] | None = None,
    message: str = "",
) -> dict[str, Any]:
    """Order a dish."""
    return {
        "dish": dish,
        "count": count,
        "price": price,
        "spicy": spicy,
        "size": size,
        "extras": extras,
        "message": message,
    }


@server.tool(description=f"<script>alert('described')</script> {HIDDEN} & more")
def rude() -> ToolResult:
    return ToolResult(
        content=(TextContent(text=f"<img src=x onerror=alert('said')>{HIDDEN}\x1b[31m"),), structured_content=None
    )


@server.tool
def picture() -> ToolResult:
    """Draw."""
    return ToolResult(
        content=(
            ImageContent(data=PNG, mime_type="image/png"),
            ImageContent(data='"><script>alert(1)</script>', mime_type="image/png"),
            ImageContent(data=PNG, mime_type="image/svg+xml"),
        )
    )


@server.tool
def fail(secret: str) -> str:
    """Fail."""
    raise ToolError("it failed on purpose")


@server.tool
def secret() -> str:
    """Nothing for the console: a rule of the gateway says so."""
    return "secret"


@server.resource("notes://all", name="notes", description="All notes.")
def notes() -> str:
    return "notes"


@server.prompt
def greet(whom: str) -> str:
    """Greet somebody."""
    return f"Hello {whom}"


if __name__ == "__main__":
    server.run_stdio()
