"""The same work on several servers at once, each with its own outcome. Pure of any hub."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import anyio

ItemT = TypeVar("ItemT")


async def for_each(items: Iterable[ItemT], work: Callable[[ItemT], Awaitable[object]]) -> list[tuple[ItemT, Exception]]:
    """Do `work` for all items concurrently; return those that failed with their errors, in the items' order.

    A failure does not stop the others; cancellation reaches all of them.
    """
    ordered = list(items)
    failures: dict[int, Exception] = {}

    async def one(index: int) -> None:
        try:
            await work(ordered[index])
        except Exception as exc:
            # Boundary: one server's failure is an outcome.
            failures[index] = exc

    async with anyio.create_task_group() as tasks:
        for index in range(len(ordered)):
            tasks.start_soon(one, index)
    return [(ordered[index], failures[index]) for index in sorted(failures)]
