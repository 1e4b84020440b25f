"""A thread with an event loop, for synchronous code: async work runs there while the calling thread waits.

There is one for the whole process, started at the first use, so that connections, hubs and agents of synchronous code
share one loop, whichever threads use them.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

T = TypeVar("T")

_CLOSE_SECONDS = 20.0
"""Seconds that everything open may take to close when the interpreter exits."""
_STOP_SECONDS = 5.0
_THREAD = "toolweave-sync"
_of_parents: list[object] = []


class Closeable(Protocol):
    """An object that is closed in the loop."""

    async def close(self) -> None:
        """Close it; idempotent."""
        ...


class Portal:
    """Runs async work of synchronous code on the event loop of another thread; thread-safe."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work` in the loop and return its result; the calling thread waits.

        When the thread is interrupted meanwhile, as by Ctrl-C, the work is cancelled.

        Raises:
            RuntimeError: This is the loop's own thread, which would wait for itself.
        """
        portal = self._started()
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "a plain call of Toolweave waits in its thread, and this thread runs the event loop that it waits for; "
                "in `async def` functions, await the same call of `toolweave` instead"
            )
        future = portal.start_task_soon(work)
        try:
            return future.result()
        except BaseException:
            # Does nothing when it has ended.
            future.cancel()
            raise

    def iterate(self, stream: AsyncIterator[T]) -> Generator[T, None, None]:
        """Yield the items of an async iterator; leaving early closes it, if it can be closed.

        Raises:
            RuntimeError: The iteration began in the process that forked this one.
        """
        return self._iterated(stream, os.getpid())

    def _iterated(self, stream: AsyncIterator[T], process: int) -> Generator[T, None, None]:
        try:
            while True:
                check_process("an iteration", process)
                try:
                    yield self.run(lambda: anext(stream))
                except StopAsyncIteration:
                    return
        finally:
            end = getattr(stream, "aclose", None)
            if end is not None and process == os.getpid():
                self.run(end)

    @contextlib.contextmanager
    def enter(self, entered: Any) -> Generator[Any, None, None]:
        """Enter and leave an async context manager, both in one task of the loop.

        In a process that was forked meanwhile it is not left: it is the parent's.
        """
        # The process is remembered: a child that was forked within the block has a copy of it, without the thread and
        # the loop. Leaving it there would wait for a thread that does not exist.
        process = os.getpid()
        manager = self._started().wrap_async_context_manager(entered)
        value = manager.__enter__()
        failed: BaseException | None = None
        try:
            yield value
        except BaseException as exc:
            failed = exc
            raise
        finally:
            if process == os.getpid():
                manager.__exit__(None if failed is None else type(failed), failed, None)

    def hold(self, opened: Closeable) -> None:
        """Close an object when the interpreter exits, unless it was released before."""
        self._open[id(opened)] = opened

    def release(self, closed: Closeable) -> None:
        """Note that an object is closed."""
        self._open.pop(id(closed), None)

    def close(self) -> None:
        """Close the open resources, within a bound, and end the thread; the next use begins another."""
        with self._lock:
            portal = self._portal
            thread = self._thread
            if portal is None or thread is None:
                return
            # Nothing can be reported any more.
            with contextlib.suppress(Exception):
                portal.start_task_soon(functools.partial(_closed, list(self._open.values()))).result(_CLOSE_SECONDS)
            with contextlib.suppress(Exception):
                portal.start_task_soon(portal.stop, True).result(_STOP_SECONDS)
            thread.join(_STOP_SECONDS)
            self._forget_all()

    def _started(self) -> BlockingPortal:
        """Return the portal; the first call, also after `close`, starts its thread and loop."""
        with self._lock:
            # Two threads may be the first at once, and the process has one loop.
            if self._portal is None:
                from anyio.from_thread import start_blocking_portal

                self._running = start_blocking_portal(name=_THREAD)
                self._portal = self._running.__enter__()
                self._thread = self._portal.start_task_soon(threading.current_thread).result()
                # Registered once, although a portal may be started again after `close`.
                atexit.unregister(self.close)
                atexit.register(self.close)
            return self._portal

    def _forget(self) -> None:
        """Reset, in a process without its thread: the first one, and each forked one."""
        # Collected, it would wait for a thread that is not there.
        _of_parents.append(getattr(self, "_running", None))
        # Another thread of the parent may have held the old one at the fork, and would never release it here.
        self._lock = threading.Lock()
        self._forget_all()

    def _forget_all(self) -> None:
        self._portal: BlockingPortal | None = None
        self._thread: threading.Thread | None = None
        # Ends the thread when it is collected.
        self._running: AbstractContextManager[BlockingPortal] | None = None
        self._open: dict[int, Closeable] = {}


def check_process(what: str, process: int) -> None:
    """Refuse the use of an object of synchronous code in a process that was forked after it was made.

    Raises:
        RuntimeError: This is another process than `process`: the loop and its thread were not forked.
    """
    if process != os.getpid():
        raise RuntimeError(
            f"{what} of process {process}, begun before a fork, cannot be used in process {os.getpid()}; "
            "begin another one in this process"
        )


async def _closed(opened: list[Closeable]) -> None:
    import anyio

    async def close(one: Closeable) -> None:
        # One that does not close costs the others nothing.
        with contextlib.suppress(Exception):
            await one.close()

    async with anyio.create_task_group() as tasks:
        for one in opened:
            tasks.start_soon(close, one)


PORTAL = Portal()
"""The portal of this process."""
