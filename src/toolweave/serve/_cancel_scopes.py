"""Cancel scopes for the path of every request."""

from __future__ import annotations

from functools import cache

import anyio


def cancel_scope() -> anyio.CancelScope:
    """Return an `anyio.CancelScope()`; in a coroutine.

    anyio asks in each call which event loop runs, and initialises the scope twice; that costs as much as using it.
    """
    return _class()()


@cache
def _class() -> type[anyio.CancelScope]:
    return type(anyio.CancelScope())  # that of asyncio, the only event loop that serves
