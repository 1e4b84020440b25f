"""The event loop that an object belongs to: its work runs there, whichever loop it is called from.

Frameworks call tools from threads with a loop of their own, while a connection's futures belong to one loop. asyncio
only.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from toolweave.errors import ConnectionClosedError, WrongLoopError

__all__ = ["OwnerLoop", "T", "described", "running_loop"]

T = TypeVar("T")


def running_loop(what: str = "Toolweave") -> asyncio.AbstractEventLoop:
    """Return the running event loop.

    Args:
        what: The name of the function that needs it, for errors.

    Raises:
        RuntimeError: No asyncio event loop is running.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            f"{what} runs on asyncio, and no asyncio event loop is running here; start with asyncio.run(main()), "
            "also in a program that uses trio: in a separate thread"
        ) from None


class OwnerLoop:
    """The event loop of an object, on which its work runs.

    Args:
        name: The owner's name, for errors: a server's.
    """

    __slots__ = ("_loop", "_name", "_process", "_thread")

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._process = 0

    def settle(self) -> asyncio.AbstractEventLoop:
        """Belong to the running loop from now on.

        Raises:
            RuntimeError: No asyncio loop is running.
        """
        self._loop = running_loop()
        self._thread = threading.get_ident()
        self._process = os.getpid()
        return self._loop

    def leave(self) -> None:
        """Belong to no loop any more; the next `settle` may be on any."""
        self._loop = None
        self._thread = 0

    @property
    def ended(self) -> bool:
        """Whether nothing can run on the loop: it is closed, or it is of the process that forked this one."""
        return self._loop is not None and (self._loop.is_closed() or self._process != os.getpid())

    def run(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Return a coroutine that runs `work` on the owning loop, or on the current one without an owner.

        Raises:
            WrongLoopError: The owning loop is another one, and is not running; or it is of the process that forked
                this one, where it seems to run for ever.
        """
        loop = self._loop
        if loop is None:
            return work
        if self._process != os.getpid():
            # Otherwise Python would warn the user of a coroutine that was never awaited.
            work.close()
            raise WrongLoopError(
                f"it was opened in process {self._process}, before a fork; connect in this process ({os.getpid()})",
                server=self._name,
            )
        if loop.is_running():
            # one thread runs one loop; asking which one that is takes five times as long on Python 3.11
            if threading.get_ident() == self._thread:
                return work
            return self._across(work, loop)
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
            # It is the caller's own cancellation only if its task is being cancelled. Otherwise the other loop has
            # ended with the work in it.
            if task is not None and task.cancelling():
                raise
            raise ConnectionClosedError("its event loop has ended", server=self._name) from None


def described(loop: asyncio.AbstractEventLoop) -> str:
    """Return a description of an event loop, for errors."""
    return f"<{type(loop).__name__} at {id(loop):#x}>"
