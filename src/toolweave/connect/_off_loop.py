"""Values made of large answers in a thread, so that the event loop serves others meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread

from toolweave._json_types import array_or_empty

ResultT = TypeVar("ResultT")
_MANY_PARTS = 1_000


async def make_off_loop(parts: object, make: Callable[[], ResultT]) -> ResultT:
    """Return `make()`, called in a thread for more than 1,000 parts so that it does not block the event loop.

    `make` must have no side effects: a cancelled caller abandons it.
    """
    # Below that a thread costs more than the work.
    if len(array_or_empty(parts)) > _MANY_PARTS:
        return await anyio.to_thread.run_sync(make, abandon_on_cancel=True)
    return make()
