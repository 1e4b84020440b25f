"""Worker threads of one event loop, with calls and outcomes passed in batches.

A hand-over between threads costs several times what a short function does. Functions whose last call was short are
therefore run one after the other by one thread, which wakes the event loop once for all of them; when one of them
takes longer after all, the calls behind it get threads of their own. Any other call gets a thread at once.

`anyio.from_thread` works in these threads as in anyio's own.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context, copy_context
from time import perf_counter
from typing import Any

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

try:
    # Not public: what `anyio.from_thread` asks of a thread.
    from anyio._core._eventloop import (
        claim_worker_thread,
        get_async_backend,
        set_current_async_library,  # pyright: ignore[reportUnknownVariableType]
        threadlocals,
    )
except ImportError:
    # An anyio that keeps them elsewhere: functions still run, without `anyio.from_thread`.
    claim_worker_thread = get_async_backend = set_current_async_library = threadlocals = None

_SHORT = 0.0001
"""Seconds below which a function counts as short, and shares a thread with others."""
_GLANCE = 0.0002
"""Seconds that the event loop waits for short calls at most, before it does something else."""
_PATIENCE = 0.002
"""Seconds after which calls that wait behind one that takes long get threads of their own."""
_IDLE_CHECKS = 10
_CHECK_SECONDS = 1.0
"""An idle thread ends after `_IDLE_CHECKS` of these intervals; after each it checks that its event loop exists."""


class CallLimiter:
    """A semaphore: the calls of one function that may run at the same time in one event loop; others queue.

    Args:
        most: The maximum.

    Attributes:
        short: Whether the last call took little time.
    """

    __slots__ = ("_free", "_waiting", "short")

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.short = False

    async def take(self) -> None:
        """Acquire a slot, to be released by `leave`."""
        if self._free > 0:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # It came just when it was not wanted any more.
                self.leave()
            raise

    def leave(self) -> None:
        """Release a slot to the next in the queue."""
        while self._waiting:
            # The slot is handed on and never becomes free in between, so a new caller cannot overtake those that wait.
            # One that was cancelled is done, and is passed over.
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class _ThreadCall:
    """One call. Its caller waits for `future`, which is replaced when the wait is cancelled."""

    __slots__ = ("call", "context", "dropped", "ended", "error", "future", "scope", "turns", "value")

    def __init__(self, call: Callable[[], Any], turns: CallLimiter, scope: anyio.CancelScope) -> None:
        self.call = call
        self.context: Context = copy_context()
        self.turns = turns
        self.scope = scope
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.dropped = False
        self.ended = False
        self.value: Any = None
        self.error: BaseException | None = None

    def do(self) -> None:
        """Call the function, in a worker thread."""
        if self.dropped:
            return
        began = perf_counter()
        try:
            _enter(self.context, self.scope)
            self.value = self.context.run(self.call)
        except BaseException as exc:
            # Boundary: raised again in the task that waits.
            traceback = exc.__traceback__
            # this frame holds it
            self.error = exc.with_traceback(None if traceback is None else traceback.tb_next)
        finally:
            if threadlocals is not None:
                del threadlocals.current_cancel_scope
            self.turns.short = perf_counter() - began < _SHORT

    def end(self) -> None:
        """Settle the caller's future, in the event loop."""
        self.ended = True
        if self.future.done():
            return
        error = self.error
        if error is None:
            self.future.set_result(self.value)
        elif isinstance(error, StopIteration):  # which no future can hold
            wrapped = RuntimeError("the function raised StopIteration")
            wrapped.__cause__ = error
            self.future.set_exception(wrapped)
        else:
            self.future.set_exception(error)


def _enter(context: Context, scope: anyio.CancelScope) -> None:
    """Make `anyio.from_thread` know the caller of this thread, and sniffio that no event loop runs in it."""
    if threadlocals is not None:
        threadlocals.current_cancel_scope = scope
    if set_current_async_library is not None:
        context.run(set_current_async_library, None)  # pyright: ignore[reportUnknownArgumentType]


def _claimed(loop: asyncio.AbstractEventLoop) -> AbstractContextManager[object]:
    """Return a context manager in which `anyio.from_thread` of this thread reaches the event loop."""
    if claim_worker_thread is None or get_async_backend is None:
        return nullcontext()
    return claim_worker_thread(get_async_backend("asyncio"), loop)


class WorkerThreads:
    """The worker threads of the running event loop, returned by `here`.

    They are started on demand and end after a long idle time, at the latest with the event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.idle: list[_WorkerThread] = []
        self.short: deque[_ThreadCall] = deque()
        self.drainer: _WorkerThread | None = None
        self.begun = 0
        self.over = False
        self._done: deque[_ThreadCall] = deque()
        self._announced = False
        # Not empty while the event loop waits for the drainer.
        self._watching: list[None] = []
        self._seen_off = threading.Lock()
        self._seen_off.acquire()
        self._flushing = False
        self._looking: asyncio.TimerHandle | None = None
        self._seen = -1
        self._life: AsyncGenerator[None] | None = None

    @classmethod
    async def here(cls) -> WorkerThreads:
        """Return the threads of the running event loop."""
        loop = asyncio.get_running_loop()
        threads = _of_loop.get(loop)
        if threads is None:
            threads = _of_loop[loop] = cls(loop)
            threads._life = threads._until_the_end()
            await anext(threads._life)
        return threads

    async def run(self, call: Callable[[], Any], turns: CallLimiter, *, abandon: bool) -> Any:
        """Run a call in a thread and return its result.

        Args:
            call: The function to call.
            turns: The semaphore of the function.
            abandon: Whether a cancelled call abandons its thread instead of waiting for it.

        Raises:
            BaseException: The exception that it raised.
        """
        await checkpoint_if_cancelled()
        await turns.take()
        job: _ThreadCall | None = None
        try:
            with anyio.CancelScope() as scope:
                job = _ThreadCall(call, turns, scope)
                self._put(job)
                try:
                    return await job.future
                except asyncio.CancelledError:
                    if job.future.done() and not job.future.cancelled():
                        raise  # by the function
                    if abandon or anyio.current_effective_deadline() != -math.inf:
                        job.dropped = True
                        raise
                return await _outcome(job)
        finally:
            turns.leave()
            job = None  # which holds an exception whose traceback holds this frame

    def keep(self, job: _ThreadCall) -> None:
        """Queue an ended call for the next `wake`; from a worker thread."""
        self._done.append(job)

    def settle(self) -> None:
        """Let the event loop settle the ended calls, now that no short call is left; from a worker thread."""
        try:
            self._watching.pop()
        except IndexError:
            self.wake()
        else:
            self._seen_off.release()

    def wake(self) -> None:
        """Let the event loop settle the ended calls; from a worker thread."""
        # One call into the loop for many ended calls. Two threads may both see that it is not announced, which costs a
        # second call that finds nothing; the loop clears the mark before it reads, so no ended call is overlooked.
        if self._done and not self._announced:
            self._announced = True
            try:
                self.loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                if not self.loop.is_closed():
                    raise

    def _put(self, job: _ThreadCall) -> None:
        if not job.turns.short:
            self._hand(job)
            return
        self.short.append(job)
        if not self._flushing:
            self._flushing = True
            # Behind the callbacks that are ready now, which may bring more calls.
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Let one thread run all short calls."""
        self._flushing = False
        if self.drainer is None and self.short:
            self._watching.append(None)
            try:
                self._hand(None)
            except RuntimeError as exc:
                # Boundary: no thread can be started, which is the error of all these calls.
                self._fail(exc)
                return
            if self._wait_for_short_calls():
                self._deliver()
                if self.drainer is None:
                    return
        if self._looking is None:
            self._seen = self.begun
            self._looking = self.loop.call_later(_PATIENCE, self._look)

    def _fail(self, error: RuntimeError) -> None:
        self.drainer = None
        self._watching.clear()
        while self.short:
            job = self.short.popleft()
            job.error = error
            job.end()

    def _wait_for_short_calls(self) -> bool:
        """Block the event loop briefly until all short calls have ended: cheaper than a wake-up from the thread.

        The thread has the interpreter to itself meanwhile. The moment is so short that nothing else is delayed.
        """
        if self._seen_off.acquire(timeout=_GLANCE):
            return True
        try:
            self._watching.pop()
        except IndexError:  # it ended just now
            self._seen_off.acquire()
            return True
        return False

    def _look(self) -> None:
        """Give threads to calls that wait behind a long one."""
        self._looking = None
        self._deliver()
        if self.begun == self._seen:
            # Its call is long: it continues, and does not count any more.
            self.drainer = None
            self._spread_short_calls()
        elif self.drainer is not None or self.short:
            self._seen = self.begun
            self._looking = self.loop.call_later(_PATIENCE, self._look)

    def _spread_short_calls(self) -> None:
        """Give each remaining short call its own thread."""
        for _ in range(len(self.short)):
            try:
                job = self.short.popleft()
            except IndexError:
                # A thread took the last one.
                return
            try:
                self._hand(job)
            except RuntimeError as exc:
                # Boundary: no thread can be started, which is this call's error.
                job.error = exc
                job.end()

    def _hand(self, job: _ThreadCall | None) -> None:
        """Give a thread one call, or all the short ones."""
        try:
            worker = self.idle.pop()
        except IndexError:
            worker = _WorkerThread(self)
            worker.job = job
            if job is None:
                self.drainer = worker
            worker.start()
            return
        worker.job = job
        if job is None:
            self.drainer = worker
        worker.woken.release()

    def _deliver(self) -> None:
        self._announced = False
        done = self._done
        while done:
            done.popleft().end()

    def end(self) -> None:
        """Let all threads end after their current calls."""
        self.over = True
        self.forget()
        if self._looking is not None:
            self._looking.cancel()
        while self.idle:
            self.idle.pop().woken.release()

    def forget(self) -> None:
        """Remove these threads from the registry of event loops."""
        _of_loop.pop(self.loop, None)

    async def _until_the_end(self) -> AsyncGenerator[None]:
        """An async generator of the event loop, which closes it before it closes itself: that ends the threads."""
        try:
            yield
        finally:
            self.end()


_of_loop: dict[asyncio.AbstractEventLoop, WorkerThreads] = {}


async def _outcome(job: _ThreadCall) -> Any:
    """Wait for a call whose caller was cancelled, because its thread cannot be."""
    # A new future, since the old one was cancelled with its caller. The thread may have ended the call between the two:
    # then `end` is called once more, for the new one. All of it happens in the event loop, so nothing is in between.
    with anyio.CancelScope(shield=True):
        job.future = asyncio.get_running_loop().create_future()
        if job.ended:
            job.end()
        try:
            return await job.future
        except asyncio.CancelledError:
            job.dropped = not job.ended
            raise


class _WorkerThread(threading.Thread):
    """One thread: idle, or running one call, or all short calls.

    Attributes:
        job: Its call when it is woken; None for all short calls, or for the end.
        woken: Locked while it is idle.
    """

    def __init__(self, threads: WorkerThreads) -> None:
        super().__init__(name="Toolweave worker thread", daemon=False)
        self.job: _ThreadCall | None = None
        self.woken = threading.Lock()
        self.woken.acquire()
        self._threads = threads

    def run(self) -> None:
        """Run calls until it is idle for too long."""
        threads = self._threads
        with _claimed(threads.loop):
            while True:
                job = self.job
                self.job = None
                if job is None:
                    self._drain(threads)
                    threads.idle.append(self)
                    threads.settle()
                else:
                    job.do()
                    threads.keep(job)
                    threads.idle.append(self)
                    threads.wake()
                del job
                if not self._waits(threads):
                    return

    def _drain(self, threads: WorkerThreads) -> None:
        short = threads.short
        while True:
            try:
                job = short.popleft()
            except IndexError:
                if threads.drainer is self:
                    threads.drainer = None
                    if short:  # it came just now
                        threads.drainer = self
                        continue
                return
            threads.begun += 1
            job.do()
            threads.keep(job)
            if not job.turns.short:
                threads.wake()  # what ended before has waited long enough
            del job

    def _waits(self, threads: WorkerThreads) -> bool:
        """Wait for a call; return False when none comes in time."""
        if not threads.over:
            for _ in range(_IDLE_CHECKS):
                if self.woken.acquire(timeout=_CHECK_SECONDS):
                    return not threads.over or self.job is not None
                if threads.loop.is_closed():
                    threads.forget()
                    break
                if not threading.main_thread().is_alive():
                    break
        # Removing itself from the idle ones decides the race: if it is not there, `_hand` has taken it and is about to
        # give it a call, so it waits for that instead of ending.
        try:
            threads.idle.remove(self)
        except ValueError:  # it was woken meanwhile
            self.woken.acquire()
            return not threads.over or self.job is not None
        return False
