"""A server that repeats a secret of its environment wherever it fails, over pipes, or over HTTP at `PORT`."""

from __future__ import annotations

import base64
import json
import os
import sys
from urllib.parse import quote

from toolweave import McpServer, ToolError, create_mcp_server

__all__ = ["forms", "leaky"]


def forms(secret: str) -> tuple[str, ...]:
    """Return a secret as it is, and as it is easily read."""
    return (
        secret,
        json.dumps(secret)[1:-1],
        quote(secret, safe=""),
        base64.b64encode(secret.encode()).decode(),
    )


def leaky(secret: str) -> McpServer:
    """Return a server that repeats a secret in everything that it answers with an error."""
    server = create_mcp_server(name="leaky", version="1", tasks={"burn": "required"})
    said = " and ".join(forms(secret))

    @server.tool
    async def fail() -> str:
        """Fail."""
        raise ToolError(f"refused: {said}")

    @server.tool
    async def burn() -> str:
        """Fail as a task."""
        raise ToolError(f"burnt: {said}")

    @server.resource("data://broken")
    async def broken() -> str:
        """Cannot be read."""
        raise ToolError(f"broken: {said}")

    return server


if __name__ == "__main__":
    repeated = base64.b64decode(os.environ["REPEATED"]).decode()
    print("started with", repeated, file=sys.stderr)
    if "PORT" in os.environ:
        leaky(repeated).run_http(port=int(os.environ["PORT"]))
    else:
        leaky(repeated).run_stdio()
