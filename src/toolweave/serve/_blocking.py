"""Blocking entry points of the servers, each with an event loop of its own (uvloop's when it is installed)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib.util import find_spec

import anyio

from toolweave.tools._owner_loop import running_loop

__all__ = ["run_blocking"]


def run_blocking(serve: Callable[[], Awaitable[None]], *, name: str, instead: str) -> None:
    """Run `serve` as the process's main job.

    Args:
        serve: Serves until it is done.
        name: The function that was called, for errors.
        instead: The async alternative that the error names.

    Raises:
        RuntimeError: Called inside an event loop.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        if _foreign_loop_runs():
            running_loop(f"{name}()")
    else:
        raise RuntimeError(f"an event loop runs in this thread already; await {instead}() instead")
    anyio.run(serve, backend_options={"use_uvloop": find_spec("uvloop") is not None})


def _foreign_loop_runs() -> bool:
    """Whether an event loop other than asyncio's runs in this thread: trio's."""
    try:
        anyio.get_cancelled_exc_class()
    except RuntimeError:
        return False
    return True
