"""Blocking calls of a toolset that belongs to an event loop. Independent of frameworks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Bridge:
    """Runs coroutines for threads that have no event loop, on the loop in which the bridge was made.

    Made outside of a loop, it runs each coroutine in a new loop: enough for functions, not for a connection,
    which belongs to the loop that opened it.
    """

    __slots__ = ("_loop",)

    def __init__(self) -> None:
        self._loop = _running()

    def run(self, make: Callable[[], Coroutine[Any, Any, T]], *, instead: str) -> T:
        """Return the coroutine's outcome; the calling thread waits for it.

        Args:
            make: Makes the coroutine.
            instead: The async alternative that the error names.

        Raises:
            RuntimeError: An event loop runs in this thread, or the loop that the tools belong to has ended.
        """
        if _running() is not None:
            raise RuntimeError(f"an event loop runs in this thread and would wait for itself; {instead}")
        if self._loop is None:
            return asyncio.run(make())
        if not self._loop.is_running():
            raise RuntimeError("the event loop in which these tools were exported has ended; export them again")
        future = asyncio.run_coroutine_threadsafe(make(), self._loop)
        try:
            return future.result()
        except BaseException:
            # An interrupted thread gives its call up.
            future.cancel()
            raise


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
