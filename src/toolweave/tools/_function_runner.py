"""Runs user functions: async ones in the event loop, plain ones in a bounded number of worker threads.

Exceptions that end programs (`SystemExit`, which argparse and click raise, `KeyboardInterrupt`, `GeneratorExit`) end
the call alone.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from toolweave._json_types import JsonObject
from toolweave.errors import ToolError

if TYPE_CHECKING:
    from toolweave.tools._worker_threads import CallLimiter, WorkerThreads

THREADS = 40
"""Default maximum of threads of one function; the limit that anyio and Starlette have for all functions together."""


class Runner:
    """Runs one function, with bounded concurrency if it is a plain one.

    Each function has its own threads: while all of one are busy, further calls of that function wait, and every
    other function runs.

    Args:
        what: Its name in errors, such as `tool 'add'`.
        is_async: Whether the function is one of `async def`, which needs no thread.
        threads: How many calls of a plain function may run at the same time, in each event loop.
    """

    __slots__ = ("_is_async", "_threads", "_turns", "_what")

    def __init__(self, what: str, *, is_async: bool, threads: int = THREADS) -> None:
        self._what = what
        self._is_async = is_async
        self._threads = threads
        self._turns: WeakKeyDictionary[WorkerThreads, CallLimiter] = WeakKeyDictionary()

    async def run(self, function: Callable[..., Any], arguments: JsonObject, *, abandon: bool) -> Any:
        """Call the function with keyword arguments and return its result.

        Args:
            function: The function.
            arguments: Its keyword arguments.
            abandon: Whether a cancelled call abandons its thread instead of waiting for it.

        Raises:
            ToolError: It raised a `BaseException` that is no `Exception`, or was cancelled although its caller was not.
            Exception: The exception that it raised.
        """
        try:
            if self._is_async:
                return await function(**arguments)
            from toolweave.tools._worker_threads import (
                WorkerThreads,  # anyio's 15 ms; functions are given where none is run
            )

            threads = await WorkerThreads.here()
            call = functools.partial(self._contained, function, arguments)
            value = await threads.run(call, self._turns_in(threads), abandon=abandon)
            if inspect.isawaitable(value):
                return await value
            return value
        except Exception:
            raise
        except BaseException as exc:
            # `SystemExit` in a tool must not end the server, and a stray cancellation must not look like the caller's.
            # Ours pass: swallowing those would make a task that cannot be cancelled.
            if _is_for_us(exc):
                raise
            raise self._error(exc) from exc

    def _turns_in(self, threads: WorkerThreads) -> CallLimiter:
        # By the threads of an event loop, and weakly: a limiter's waiting calls belong to one loop, and a function that
        # is used in many short-lived loops, as in tests, must not keep them all.
        turns = self._turns.get(threads)
        if turns is None:
            from toolweave.tools._worker_threads import CallLimiter  # see above

            turns = self._turns[threads] = CallLimiter(self._threads)
        return turns

    def _contained(self, function: Callable[..., Any], arguments: JsonObject) -> Any:
        """Call a function in a worker thread, where every exception but a cancellation is its own.

        `GeneratorExit` in particular must not leave the thread: thrown into a coroutine that waits, it closes it.
        """
        import asyncio  # see above

        try:
            return function(**arguments)
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as exc:
            raise self._error(exc) from exc

    def _error(self, exc: BaseException) -> ToolError:
        import asyncio  # see above

        if isinstance(exc, asyncio.CancelledError):
            return ToolError(f"{self._what} failed: what it waited for was cancelled")
        if isinstance(exc, SystemExit):
            return ToolError(f"{self._what} tried to end the process (exit status {exc.code!r})", unexpected=True)
        return ToolError(f"{self._what} raised {type(exc).__name__}{f': {exc}' if str(exc) else ''}", unexpected=True)


def _is_for_us(exc: BaseException) -> bool:
    """Whether an exception that is no `Exception` came from outside of the function, as it passes through `run`.

    A cancellation does if this task was cancelled. `KeyboardInterrupt` does if a signal handler raised it.
    `GeneratorExit` does if this coroutine is being closed: closing closes the awaited object first, and then raises
    again in each frame, so that its traceback begins and ends in ours.
    """
    import asyncio  # see above

    if isinstance(exc, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    if isinstance(exc, GeneratorExit):
        return exc.__traceback__ is None or exc.__traceback__.tb_next is None
    if isinstance(exc, KeyboardInterrupt):
        return _is_interrupt(exc.__traceback__)
    if isinstance(exc, BaseExceptionGroup):
        parts = cast("BaseExceptionGroup[BaseException]", exc).exceptions
        return any(_is_for_us(part) for part in parts if not isinstance(part, Exception))
    return False


def _is_interrupt(traceback: TracebackType | None) -> bool:
    """Whether a `KeyboardInterrupt` is the user's: one that the handler of SIGINT has raised, in the main thread."""
    import signal  # rarely needed

    if threading.current_thread() is not threading.main_thread():
        return False
    handler: Any = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        return True  # it leaves no frame behind
    # asyncio's is a `partial`
    code = getattr(getattr(handler, "func", handler), "__code__", None)
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return code is not None and traceback is not None and traceback.tb_frame.f_code is code
