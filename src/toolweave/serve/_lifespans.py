"""The lifespans of servers and toolsets mounted in a server, also while that runs already. Knows no server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol, runtime_checkable

import anyio
import anyio.abc


@runtime_checkable
class _HasLifespan(Protocol):
    def running(self) -> AbstractAsyncContextManager[Any]: ...


class Lifespans:
    """Servers, and context managers such as toolsets, that run as long as the server they are mounted in.

    Those added before the server runs are entered in order, before the server answers; those added later are entered
    at once, and one that is not entered yet answers as if it were not open.
    """

    def __init__(self) -> None:
        self._things: list[Any] = []
        self._runs: list[anyio.abc.TaskGroup] = []

    def add(self, thing: Any) -> None:
        """Let something run with the server."""
        self._things.append(thing)
        for tasks in self._runs:
            tasks.start_soon(_keep_running, thing)

    @asynccontextmanager
    async def running(self, tasks: anyio.abc.TaskGroup) -> AsyncGenerator[None, None]:
        """Run everything during the block; `tasks` runs those added meanwhile."""
        async with AsyncExitStack() as stack:
            for thing in tuple(self._things):
                await stack.enter_async_context(_lifespan(thing))
            self._runs.append(tasks)
            stack.callback(self._runs.remove, tasks)
            yield


def _lifespan(thing: Any) -> AbstractAsyncContextManager[Any]:
    return thing.running() if isinstance(thing, _HasLifespan) else thing


async def _keep_running(thing: Any) -> None:
    async with _lifespan(thing):
        await anyio.sleep_forever()
