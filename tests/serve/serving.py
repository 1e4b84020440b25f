"""Servers on a real socket, in the test's own event loop: `serve_http` on a free port."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol, Unpack

import anyio
import uvicorn
from anyio.abc import TaskStatus

from tests.serve.sdk_loop import sdk_server
from toolweave.serve import McpServer
from toolweave.serve._http.app import HttpApp
from toolweave.serve._http.http_server import serve_http
from toolweave.serve._http.limits import HttpLimits
from toolweave.serve._http.options import HttpOptions

__all__ = ["Served", "served_app", "served_by_the_sdk", "served_http"]

STOPPING = HttpLimits(shutdown_seconds=2)
"""What a test that is over waits for calls that still run."""


class Served(Protocol):
    """What has an ASGI app: an `McpServer`."""

    def asgi_app(self, *, host: str = "127.0.0.1", **options: Unpack[HttpOptions]) -> HttpApp:
        """Return the app."""
        ...


@asynccontextmanager
async def served_app(app: HttpApp, *, port: int = 0) -> AsyncGenerator[str]:
    """Serve an app for the block; yield its address without a path, such as `http://127.0.0.1:40123`."""

    async def serve(*, task_status: TaskStatus[str]) -> None:
        await serve_http(app, port=port, on_started=task_status.started)

    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(30):
            url = await tasks.start(serve)
        try:
            yield url
        finally:
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def served_http(server: Served, **options: Unpack[HttpOptions]) -> AsyncGenerator[str]:
    """Serve an `McpServer` for the block; yield the URL of its MCP endpoint.

    Options are those of `McpServer.asgi_app`.
    """
    options.setdefault("limits", STOPPING)
    app = server.asgi_app(**options)
    async with served_app(app) as url:
        yield url + app.path


@asynccontextmanager
async def served_by_the_sdk(server: McpServer) -> AsyncGenerator[str]:
    """Serve the official SDK's own app in front of the same server, for comparison; yield the URL of its endpoint."""
    app = sdk_server(server).streamable_http_app(host="0.0.0.0")  # which binds nothing, and checks no Host header
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, timeout_graceful_shutdown=2)
    runner = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runner.serve)
        with anyio.fail_after(30):
            while not runner.started:
                await anyio.sleep(0.01)
        port = runner.servers[0].sockets[0].getsockname()[1]
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            runner.should_exit = True
