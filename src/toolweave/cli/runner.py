"""Runs a command's coroutine: Ctrl-C and termination signals close every server before the command ends.

Knows nothing of what the coroutine does.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskStatus

from toolweave.cli.exits import ExitCode
from toolweave.cli.screen import errors_to_screen, note

__all__ = ["run"]


def run(body: Callable[[], Awaitable[ExitCode]], *, verbose: bool = False) -> ExitCode:
    """Run a coroutine function to its end and return its exit code, `INTERRUPTED` when a signal stopped it.

    A second signal changes nothing: closing is bounded, and a server must not outlive the command.
    What the body raises is raised.
    """
    with errors_to_screen(verbose=verbose):
        outcome = anyio.run(_supervise, body)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def _supervise(body: Callable[[], Awaitable[ExitCode]]) -> ExitCode | Exception:
    outcome: ExitCode | Exception = ExitCode.INTERRUPTED
    scope = anyio.CancelScope()
    async with anyio.create_task_group() as tasks:
        await tasks.start(_watch_signals, scope)
        with scope:
            try:
                outcome = await body()
            except Exception as exc:  # boundary: carried over the task group, which would wrap it
                outcome = _single(exc)
        tasks.cancel_scope.cancel()
    return ExitCode.INTERRUPTED if scope.cancel_called else outcome


async def _watch_signals(scope: anyio.CancelScope, *, task_status: TaskStatus[None]) -> None:
    wanted = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if sys.platform != "win32" else [])]
    wanted = [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]  # nohup stays nohup
    with anyio.open_signal_receiver(*wanted) as signals:
        task_status.started()
        async for _ in signals:
            if not scope.cancel_called:
                note("interrupted; closing the servers")
                scope.cancel()


def _single(exc: Exception) -> Exception:
    while isinstance(exc, ExceptionGroup):
        inner: tuple[Exception, ...] = exc.exceptions  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if len(inner) != 1:
            return exc  # pyright: ignore[reportUnknownVariableType]
        exc = inner[0]
    return exc
