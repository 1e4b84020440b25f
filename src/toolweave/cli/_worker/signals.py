"""Shutdown of a worker: graceful and bounded at the first signal, immediate at the second. Knows no jobs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio

from toolweave.cli._exit_codes import ExitCode

_HAND_OVER_SECONDS = 8.0
"""Seconds after the grace in which everything else has to end."""


class Shutdown:
    """The scopes that a signal cancels: the one of the work while it is under way, else that of everything.

    Attributes:
        work: The scope of the work, once it begins: its connections stay open until it has ended.
    """

    def __init__(self) -> None:
        self.all = anyio.CancelScope()
        self.work: anyio.CancelScope | None = None

    def begin(self) -> None:
        """Cancel the work, or everything before it begins."""
        (self.work or self.all).cancel()


@contextmanager
def ended_by_signals(stopping: Callable[[], None], *, grace_seconds: float) -> Generator[Shutdown]:
    """Cancel the block, or its work, at SIGINT, SIGTERM or SIGHUP and continue after it; call `stopping` before.

    A second signal, or a block that has not ended some seconds after the grace, ends the process with
    `INTERRUPTED`; the servers that it started are ended by the process that watches them.
    """
    # The handlers run in the event loop, the timer in a thread: it is the last resort if the loop is blocked. It is
    # cancelled when the block has ended, whatever ended it.
    shutdown = Shutdown()
    with shutdown.all:
        last: list[threading.Timer] = []
        seconds = grace_seconds + _HAND_OVER_SECONDS

        def signalled() -> None:
            if last:
                _end_now()
            # a thread: code that blocks the loop is ended too
            timer = threading.Timer(seconds, _end_now)
            timer.daemon = True
            timer.start()
            last.append(timer)
            stopping()
            shutdown.begin()

        taken = _taken()
        loop = asyncio.get_running_loop()
        for number in taken:
            loop.add_signal_handler(number, signalled)
        try:
            yield shutdown
        finally:
            for number in taken:
                loop.remove_signal_handler(number)
            for timer in last:
                timer.cancel()


def _taken() -> list[signal.Signals]:
    # its loop takes no signal handlers; Ctrl-C raises KeyboardInterrupt there
    if sys.platform == "win32":
        return []
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # nohup stays nohup
    return [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]


def _end_now() -> None:
    os._exit(int(ExitCode.INTERRUPTED))
