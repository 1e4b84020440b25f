"""The start beside a store or a backend whose server is away: programs that run for long wait for it.

A command that asks one thing reports such a server at once; see `StoreError.is_temporary`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import anyio

from toolweave.errors import StoreError, printable

__all__ = ["STARTUP_SECONDS", "opened_if_reached", "opened_when_reached"]

STARTUP_SECONDS = 60.0
"""Seconds for which a server or a worker waits at its start: a failover by Sentinels takes half of that at most."""
_MAX_PAUSE = 2.0

_log = logging.getLogger("toolweave.state")


@asynccontextmanager
async def opened_when_reached(
    opened: AbstractAsyncContextManager[object], *, seconds: float = STARTUP_SECONDS
) -> AsyncGenerator[None]:
    """Keep a store or a backend open during the block; wait first, with one line of log, while its server is away.

    Raises:
        StoreError: Waiting does not help, as with a wrong password, or the server is still away after so many seconds.
    """
    async with AsyncExitStack() as stack:
        await _enter(stack, opened, seconds)
        yield


@asynccontextmanager
async def opened_if_reached(opened: AbstractAsyncContextManager[object]) -> AsyncGenerator[None]:
    """Keep a store open during the block; a server that is away is not waited for, and found later by those who use it.

    Raises:
        StoreError: Waiting does not help, as with a wrong password.
    """
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(opened)
        except StoreError as exc:
            if not exc.is_temporary:
                raise
        yield


async def _enter(stack: AsyncExitStack, opened: AbstractAsyncContextManager[object], seconds: float) -> None:
    deadline = anyio.current_time() + seconds
    pause = 0.1
    reported = False
    while True:
        try:
            await stack.enter_async_context(opened)
            return
        except StoreError as exc:
            # Only what another attempt can change is waited for: a wrong password has to be seen at once by the one
            # who deploys it.
            if not exc.is_temporary or anyio.current_time() + pause > deadline:
                raise
            if not reported:
                _log.warning("waiting up to %g s: %s", seconds, printable(str(exc)))
                reported = True
        await anyio.sleep(pause)
        pause = min(_MAX_PAUSE, 2 * pause)
