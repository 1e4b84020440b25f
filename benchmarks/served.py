"""One tool, served: `python -m benchmarks.served CONTENDER stdio|http [many|token]`. Over HTTP it prints a port first.

Each contender serves `payload(size)` the way its own documentation says, in the environment that has it. With `many` it
serves a thousand tools, with `token` ours want the bearer token `TOKEN`.
"""

from __future__ import annotations

import asyncio
import importlib
import socket
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["LISTED", "SERVERS", "TOKEN"]

TOKEN = "a-token-of-the-benchmark"


def payload(size: int) -> str:
    """Return `size` bytes."""
    return "x" * size


async def payload_async(size: int) -> str:
    """Return `size` bytes."""
    return "x" * size


def listen(app: Any) -> None:
    """Serve an ASGI app on a free port, in the way that is the fastest here."""
    uvicorn: Any = importlib.import_module("uvicorn")
    here = socket.socket()
    here.bind(("127.0.0.1", 0))
    here.listen(128)
    print(here.getsockname()[1], flush=True)
    config = uvicorn.Config(app, http="httptools", loop="uvloop", log_level="error", access_log=False)
    uvicorn.Server(config).run(sockets=[here])


def raw(transport: str) -> None:
    """Serve with nothing but a JSON codec: the practical limit of one process."""
    from benchmarks.raw_server import app, serve_stdio

    if transport == "stdio":
        asyncio.run(serve_stdio())
    else:
        listen(app)


def toolweave(transport: str) -> None:
    """Serve with ours."""
    from toolweave.serve import create_mcp_server

    server = create_mcp_server(name="bench", version="1", tools=[payload_named()])
    if transport == "stdio":
        server.run_stdio()
    else:
        listen(server.asgi_app(auth=auth()))


def auth() -> Any:
    """Return who may call: everybody, or who has the token."""
    from toolweave.serve import BearerAuth

    return BearerAuth(tokens={TOKEN: "bench"}) if "token" in sys.argv[3:] else None


def payload_named() -> Any:
    """Return the async tool under the one name."""
    from toolweave import tool

    return tool(payload_async, name="payload")


def started(transport: str) -> None:
    """Serve with ours as its documentation says: `run_http`."""
    run_http(payload_named())


def plain(transport: str) -> None:
    """Serve a plain function with ours, which runs in a worker thread."""
    from toolweave import tool
    from toolweave.serve import create_mcp_server

    if transport == "stdio":
        create_mcp_server(name="bench", version="1", tools=[tool(payload)]).run_stdio()
    else:
        run_http(tool(payload))


def run_http(served: Any) -> None:
    """Serve one tool as the process's main job."""
    from toolweave.serve import create_mcp_server

    server = create_mcp_server(name="bench", version="1", tools=[served])
    server.run_http(port=0, auth=auth(), on_started=lambda url: print(url.rpartition(":")[2], flush=True))


def many(transport: str) -> None:
    """Serve a thousand tools with ours."""
    from benchmarks.raw_server import MANY
    from toolweave import tool
    from toolweave.serve import create_mcp_server

    tools = [tool(payload_async, name=f"payload_{number}") for number in range(MANY)]
    listen(create_mcp_server(name="bench", version="1", tools=tools).asgi_app())


def sdk(transport: str) -> None:
    """Serve with the official SDK's `MCPServer`."""
    module: Any = importlib.import_module("mcp.server.mcpserver")
    server = module.MCPServer("bench", version="1")
    server.tool(name="payload")(payload_async)
    if transport == "stdio":
        server.run("stdio")
    else:
        listen(server.streamable_http_app(json_response=True))


def fastmcp(transport: str) -> None:
    """Serve with FastMCP."""
    module: Any = importlib.import_module("fastmcp")
    server = module.FastMCP("bench", version="1")
    server.tool(name="payload")(payload_async)
    if transport == "stdio":
        server.run("stdio", show_banner=False)
    else:
        listen(server.http_app(json_response=True))


SERVERS: dict[str, Callable[[str], None]] = {
    "raw": raw,
    "toolweave": toolweave,
    "toolweave, run_http": started,
    "toolweave, run_http, def": plain,
    "sdk": sdk,
    "fastmcp": fastmcp,
}
"""Contender -> how it serves over a transport."""

LISTED: dict[str, Callable[[str], None]] = {"raw": raw, "toolweave": many}
"""Contender -> how it serves a thousand tools over HTTP."""

if __name__ == "__main__":
    (LISTED if "many" in sys.argv[3:] else SERVERS)[sys.argv[1]](sys.argv[2])
