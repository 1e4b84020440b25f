"""Waits between polls of a store: they grow, up to a bound, and end with a signal where there are some.

Knows nothing of the values that are polled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from toolweave.state import Store, listening
from toolweave.state._signals import Sleep

T = TypeVar("T")

FIRST_SECONDS = 0.1
_LAST_SECONDS = 1.0
_GROWTH = 1.5


def longer(seconds: float) -> float:
    """Return the next wait after one of so many seconds in which nothing happened."""
    return min(seconds * _GROWTH, _LAST_SECONDS)


class Backoff:
    """The waits between polls: longer each time, short again after a change.

    Args:
        sleep: Waits so many seconds.
        first: The first wait, in seconds.
    """

    def __init__(self, sleep: Sleep, *, first: float = FIRST_SECONDS) -> None:
        self._sleep = sleep
        self._first = first
        self._next = first

    async def wait(self) -> float:
        """Wait, and longer the next time; return the seconds waited."""
        seconds = self.next()
        await self._sleep(seconds)
        return seconds

    def next(self) -> float:
        """Return the seconds to wait now; the next wait is longer."""
        seconds = self._next
        self._next = longer(self._next)
        return seconds

    async def wait_for(self, event: anyio.Event) -> None:
        """Wait for an event as long as `wait` would, but at least the first wait: a burst counts as one change."""
        # The first wait is not cut short by the event: changes that follow each other closely are then read at once.
        rest = self._next - self._first
        self._next = longer(self._next)
        await self._sleep(self._first)
        if rest <= 0:
            return
        async with anyio.create_task_group() as tasks:

            async def end_with_time() -> None:
                await self._sleep(rest)
                tasks.cancel_scope.cancel()

            tasks.start_soon(end_with_time)
            await event.wait()
            tasks.cancel_scope.cancel()

    def restart(self) -> None:
        """Look again soon."""
        self._next = self._first


async def until(
    store: Store,
    name: str,
    look: Callable[[], Awaitable[T | None]],
    *,
    sleep: Sleep,
    first: float = FIRST_SECONDS,
    last: float = 5.0,
) -> T:
    """Poll `look` until its result is not None, and return that.

    Args:
        store: Passes on the signal, if it passes on any.
        name: The signal that it is worth to look.
        look: Looks; first when the signals are listened to, so that none is missed.
        sleep: Waits so many seconds.
        first: Seconds until the second look, where changes are not signalled; it grows.
        last: Seconds until the next look where they are; a signal may be lost.
    """
    backoff = Backoff(sleep, first=first)
    async with listening(store, name) as listener:
        while (found := await look()) is None:
            # A sure listener makes polling a safeguard only, so it is rare; without signals the polls are all there is.
            await listener.wait(last if listener.sure else backoff.next(), sleep)
    return found
