"""The blocking twins of what serves: an event loop of their own, uvloop's when it is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib.util import find_spec

import anyio

__all__ = ["run_blocking"]


def run_blocking(serve: Callable[[], Awaitable[None]], *, instead: str) -> None:
    """Run `serve` as the process's main job.

    Raises:
        RuntimeError: Called inside an event loop, where `instead` is what can be awaited.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise RuntimeError(f"an event loop runs in this thread already; await {instead}() instead")
    anyio.run(serve, backend_options={"use_uvloop": find_spec("uvloop") is not None})
