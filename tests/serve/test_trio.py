"""Each way to serve reports at once under trio that asyncio is needed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from toolweave.serve import McpServer, create_mcp_server

trio: Any = pytest.importorskip("trio")


async def serve_stdio(server: McpServer) -> None:
    await server.serve_stdio()


async def serve_http(server: McpServer) -> None:
    await server.serve_http(port=0)


async def run_stdio(server: McpServer) -> None:
    server.run_stdio()


async def run_http(server: McpServer) -> None:
    server.run_http(port=0)


async def in_process(server: McpServer) -> None:
    async with server:
        pass


async def as_an_app(server: McpServer) -> None:
    async with server.asgi_app().lifespan():
        pass


@pytest.mark.parametrize(
    ("serve", "name"),
    [
        (serve_stdio, r"serve_stdio\(\)"),
        (serve_http, r"serve_http\(\)"),
        (run_stdio, r"run_stdio\(\)"),
        (run_http, r"run_http\(\)"),
        (in_process, "a server in process"),
        (as_an_app, "the ASGI app of an MCP server"),
    ],
)
def test_every_way_to_serve_tells_trio_its_name_and_that_asyncio_is_needed(
    serve: Callable[[McpServer], Awaitable[None]], name: str
) -> None:
    server = create_mcp_server(name="s", version="1")

    async def main() -> None:
        await serve(server)

    with pytest.raises(RuntimeError, match=rf"^{name} runs on asyncio, .*start with asyncio.run") as raised:
        trio.run(main)
    assert raised.value.__cause__ is None
