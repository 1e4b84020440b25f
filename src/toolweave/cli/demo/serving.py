"""Serve a server over HTTP beside its client: in another thread, for a block."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from anyio.abc import TaskStatus
from anyio.from_thread import start_blocking_portal

from toolweave.serve import McpServer

__all__ = ["serving_http"]


@contextmanager
def serving_http(server: McpServer) -> Generator[str]:
    """Serve on a free port of 127.0.0.1 while the block runs; yields the URL.

    In a thread: there signals stay with the program, which `serve_http` would else take as its own end.
    """

    async def serve(*, task_status: TaskStatus[str]) -> None:
        await server.serve_http(port=0, on_started=task_status.started)

    with start_blocking_portal() as portal:
        running, url = portal.start_task(serve)
        try:
            yield f"{url}/mcp"
        finally:
            running.cancel()
