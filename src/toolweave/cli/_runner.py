"""Runs a command's coroutine: Ctrl-C and termination signals close every server before the command ends.

Knows nothing about the coroutine.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from toolweave.cli._exit_codes import ExitCode
from toolweave.cli._screen import note

if TYPE_CHECKING:
    from anyio import CancelScope


def run(
    body: Callable[[], Awaitable[ExitCode]], *, verbose: bool = False, interrupt: Callable[[], bool] | None = None
) -> ExitCode:
    """Run a coroutine function to its end and return its exit code, `INTERRUPTED` when a signal stopped it.

    A second signal changes nothing: closing is bounded in time, and a server must not outlive the command.
    Exceptions of the body propagate, a group of one as that one. `interrupt` is called first at Ctrl-C: when it
    returns True it has handled the signal.
    """
    import anyio  # --help imports this module

    from toolweave.cli._log import log_to_screen

    with log_to_screen(verbose=verbose):
        try:
            return anyio.run(_supervise, body, interrupt)
        except ExceptionGroup as group:
            raise _single(group) from None


async def _supervise(body: Callable[[], Awaitable[ExitCode]], interrupt: Callable[[], bool] | None) -> ExitCode:
    import anyio  # as above

    # The scope swallows its own cancellation, and only that: an exception of the body passes, and a body that ends
    # normally after the signal still counts as interrupted.
    outcome = ExitCode.INTERRUPTED
    with anyio.CancelScope() as scope, _cancelled_by_signals(scope, interrupt):
        outcome = await body()
    if scope.cancel_called:
        return ExitCode.INTERRUPTED
    return outcome


@contextmanager
def _cancelled_by_signals(scope: CancelScope, interrupt: Callable[[], bool] | None) -> Generator[None]:
    import asyncio  # as above

    def interrupted() -> None:
        if not scope.cancel_called:
            note("interrupted; closing the servers")
            scope.cancel()

    # its loop takes no signal handlers; Ctrl-C raises KeyboardInterrupt there
    if sys.platform == "win32":
        yield
        return
    loop = asyncio.get_running_loop()
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # nohup stays nohup
    taken = [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]

    def pressed() -> None:
        if interrupt is None or not interrupt():
            interrupted()

    for number in taken:
        loop.add_signal_handler(number, pressed if number == signal.SIGINT else interrupted)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)


def _single(group: ExceptionGroup[Exception]) -> Exception:
    inner: Exception = group
    while isinstance(inner, ExceptionGroup):
        members: tuple[Exception, ...] = inner.exceptions  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if len(members) != 1:
            break
        inner = members[0]
    return inner  # pyright: ignore[reportUnknownVariableType]
