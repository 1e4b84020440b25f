"""Graceful shutdown: SIGTERM, SIGINT and SIGHUP call a function instead of their default actions."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))


@contextmanager
def stop_signals(
    stop: Callable[[], None], *, other: Mapping[int, Callable[[], object]] | None = None
) -> Generator[None, None, None]:
    """Call `stop` in the event loop on each of these signals during the block; in the main thread only.

    An ignored signal stays ignored, as `nohup` and background shells expect.

    Args:
        stop: The function.
        other: Functions for single signals, by number, which are called instead.
    """
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in _ENDING:
            handler = signal.getsignal(number)
            if handler is signal.SIG_IGN:
                continue
            # Windows, where asyncio ends the program by itself
            with suppress(NotImplementedError):
                loop.add_signal_handler(number, (other or {}).get(number, stop))
                before[number] = handler
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
