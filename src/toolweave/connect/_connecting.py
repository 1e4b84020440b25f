"""The return value of `connect_mcp` and `connect_mcp_servers`, for `await` and `async with` alike."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import anyio

from toolweave.tools.owner_loop import running_loop


class Openable(ABC):
    """A resource that is opened and closed under one rule: the code that opened it closes it.

    Opened by `open()`, as by awaiting, it stays open until `close()`, and entering it meanwhile only borrows it. Opened
    by entering, it is closed when the last block is left. So an agent, a server or a wrapper may enter all that it is
    given: a resource that was open stays open, any other is closed afterwards.

    When the last block is left, or opening fails, it is not open, as before it was first opened: it can be opened
    again, on any event loop. Only `close()` is final.
    """

    # Why no user loses it to another: a user is counted before it opens, and the count is read without yielding before
    # it is closed. A user that comes while it is being closed waits for the end of that, and opens it anew. The end is
    # a future of threads, because the two users may be on different event loops.
    _entered = 0
    _process = 0
    _kept = False
    _final = False
    _closing: Future[None] | None = None

    @abstractmethod
    async def _open(self) -> None:
        """Open it, or do nothing if it is open.

        Raises:
            ConnectionClosedError: `close()` was called.
        """

    @abstractmethod
    async def _close(self) -> None:
        """Close it for all users; idempotent, from any task, bounded."""

    @property
    def is_used(self) -> bool:
        """Whether it was opened by `open()`, or a block with it was not left."""
        return self._entered > 0 or self._kept

    async def open(self) -> None:
        """Open it until `close()`; see the class for its errors and waits."""
        running_loop()
        before = self._kept
        self._kept = True
        try:
            await self._acquire()
        except BaseException:
            self._kept = before
            await self._release()
            raise

    async def close(self) -> None:
        """Close it for all users, finally; idempotent, from any task, bounded."""
        self._final = True
        await self._close()

    async def __aenter__(self) -> Self:
        running_loop()
        self._process = os.getpid()
        self._entered += 1
        try:
            await self._acquire()
        except BaseException:
            self._entered -= 1
            await self._release()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # a forked process leaves the block: it is the parent's
        if self._process != os.getpid():
            return
        self._entered -= 1
        await self._release()

    async def _acquire(self) -> None:
        while self._closing is not None:
            # Shielded: a waiter that is cancelled must not cancel the future of the others.
            await asyncio.shield(asyncio.wrap_future(self._closing))
        await self._open()

    async def _release(self) -> None:
        """Close it after its last user."""
        if self.is_used or self._closing is not None:
            return
        closed = self._closing = Future()
        try:
            with anyio.CancelScope(shield=True):
                await self._close()
        finally:
            self._closing = None
            closed.set_result(None)


OpenableT = TypeVar("OpenableT", bound=Openable)


class Connecting(Generic[OpenableT]):
    """A connection attempt: no I/O until it is awaited or entered, which may be done once.

    `conn = await connect_mcp(...)` leaves closing to the caller (`await conn.close()`);
    `async with connect_mcp(...) as conn` closes on leaving.
    """

    def __init__(self, make: Callable[[], OpenableT]) -> None:
        self._make = make
        self._target = make()
        self._used = False

    def unopened(self) -> OpenableT:
        """Return another connection with the same arguments, which the code that uses it opens and closes."""
        return self._make()

    def _taken(self) -> OpenableT:
        if self._used:
            raise RuntimeError("this connection attempt was used already; call connect_mcp again for another one")
        self._used = True
        return self._target

    async def _opened(self) -> OpenableT:
        target = self._taken()
        await target.open()
        return target

    def __await__(self) -> Generator[Any, Any, OpenableT]:
        return self._opened().__await__()

    async def __aenter__(self) -> OpenableT:
        return await self._taken().__aenter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._target.__aexit__(exc_type, exc, traceback)

    def __repr__(self) -> str:
        if self._used:
            how = "used already"
        else:
            how = "await it, or enter it with `async with`"
        return f"<Connecting, {how}: {self._target!r}>"
