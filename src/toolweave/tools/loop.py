"""The event loop that something belongs to: what others ask of it is done there, whichever loop they ask from.

Frameworks call tools from threads with a loop of their own, while what an answer wakes belongs to one loop. asyncio
alone; knows nothing of what is done.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from toolweave.errors import ConnectionClosedError, WrongLoopError

__all__ = ["Home", "described", "running_loop"]

T = TypeVar("T")


def running_loop(what: str = "Toolweave") -> asyncio.AbstractEventLoop:
    """Return the running event loop.

    Args:
        what: What needs it, for errors: a function's name.

    Raises:
        RuntimeError: There is none of asyncio here.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            f"{what} runs on asyncio, and no asyncio event loop is running here; start with asyncio.run(main()), "
            "also in a program that uses trio: in a thread of its own"
        ) from None


class Home:
    """An event loop to come back to.

    Args:
        name: Whose it is, for errors: a server's name.
    """

    __slots__ = ("_loop", "_name", "_thread")

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def settle(self) -> asyncio.AbstractEventLoop:
        """Make the running loop the home.

        Raises:
            RuntimeError: No asyncio loop is running.
        """
        self._loop = running_loop()
        self._thread = threading.get_ident()
        return self._loop

    def leave(self) -> None:
        """Belong to no loop any more; the next to settle may be any."""
        self._loop, self._thread = None, 0

    @property
    def ended(self) -> bool:
        """Whether the loop was closed, so that nothing of it can go on."""
        return self._loop is not None and self._loop.is_closed()

    def run(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Return what does `work` at home, or right here where there is no home.

        Raises:
            WrongLoopError: The home is another loop, and nothing runs in it now.
        """
        loop = self._loop
        if loop is None:
            return work
        if loop.is_running():
            # one thread runs one loop; asking which one that is takes five times as long on Python 3.11
            return work if threading.get_ident() == self._thread else self._across(work, loop)
        work.close()
        state = "is closed" if loop.is_closed() else "is not running"
        raise WrongLoopError(
            f"it belongs to the event loop that opened it, {described(loop)}, which {state}, and was used in "
            f"{described(running_loop())}; use it where it was opened, or connect again here",
            server=self._name,
        )

    async def _across(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
        there = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return await asyncio.wrap_future(there)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ConnectionClosedError("its event loop has ended", server=self._name) from None


def described(loop: asyncio.AbstractEventLoop) -> str:
    """Return what tells an event loop from others, for errors."""
    return f"<{type(loop).__name__} at {id(loop):#x}>"
