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

GRACE_SECONDS = 20.0
"""Seconds that a graceful shutdown may take; process managers kill after 30 s, or later."""


@contextmanager
def ended_by_signals(stopping: Callable[[], None], *, seconds: float = GRACE_SECONDS) -> Generator[None]:
    """Cancel the block at SIGINT, SIGTERM or SIGHUP and continue after it; call `stopping` before.

    A second signal, or a block that has not ended `seconds` after the first, ends the process with
    `INTERRUPTED`; the servers that it started are ended by the process that watches them.
    """
    with anyio.CancelScope() as scope:
        last: list[threading.Timer] = []

        def signalled() -> None:
            if last:
                _end_now()
            timer = threading.Timer(seconds, _end_now)  # a thread: code that blocks the loop is ended too
            timer.daemon = True
            timer.start()
            last.append(timer)
            stopping()
            scope.cancel()

        taken = _taken()
        loop = asyncio.get_running_loop()
        for number in taken:
            loop.add_signal_handler(number, signalled)
        try:
            yield
        finally:
            for number in taken:
                loop.remove_signal_handler(number)
            for timer in last:
                timer.cancel()


def _taken() -> list[signal.Signals]:
    if sys.platform == "win32":  # its loop takes no signal handlers; Ctrl-C raises KeyboardInterrupt there
        return []
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]  # nohup stays nohup


def _end_now() -> None:
    os._exit(int(ExitCode.INTERRUPTED))
