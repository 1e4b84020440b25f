"""Progress notifications of one request, delivered to its callback one after the other."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from toolweave.connect._session import ClientHandlers
from toolweave.tools._call import Progress, ProgressCallback

_log = logging.getLogger("toolweave.connect")

ResultT = TypeVar("ResultT")


class ProgressFeed:
    """A queue of progress notifications, delivered to a sync or async callback one after the other.

    `touch` is called for every notification at once: it is the sign of life that resets a deadline.
    """

    def __init__(self, callback: ProgressCallback, touch: Callable[[], None]) -> None:
        self._callback = callback
        self._touch = touch
        self._waiting: deque[Progress] = deque()
        self._arrived = anyio.Event()
        self._ended = False

    def put(self, progress: Progress) -> None:
        """Queue one notification; never waits."""
        self._touch()
        self._waiting.append(progress)
        self._arrived.set()

    def end(self) -> None:
        """Mark the end of the queue; `run` returns when the rest is delivered."""
        self._ended = True
        self._arrived.set()

    async def run(self) -> None:
        """Deliver until `end`."""
        while True:
            await self._arrived.wait()
            self._arrived = anyio.Event()
            while self._waiting:
                try:
                    outcome = self._callback(self._waiting.popleft())
                    if inspect.isawaitable(outcome):
                        await outcome
                except Exception:  # boundary: user code must not fail the call it watches
                    _log.exception("a progress callback raised")
            if self._ended:
                return


async def watched(
    peer: ClientHandlers,
    callback: ProgressCallback | None,
    touch: Callable[[], None],
    work: Callable[[str], Awaitable[ResultT]],
) -> ResultT:
    """Run `work` with a progress token; all progress is delivered before its result is returned."""
    feed = ProgressFeed(callback or (lambda _progress: None), touch)
    token = peer.watch_progress(feed.put)
    results: list[ResultT] = []
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed.run)
        try:
            results.append(await work(token))
        except Exception as exc:  # boundary: kept out of the task group, which would wrap it
            failure = exc
        finally:
            peer.forget_progress(token)
            feed.end()
    if failure is not None:
        raise failure
    return results[0]
