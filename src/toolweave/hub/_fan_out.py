"""Concurrent work on several servers, and the error for a name that none of them has. Pure of any hub."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TypeVar

import anyio

from toolweave.errors import ErrorKind, ToolError
from toolweave.tools._names import aliases, unknown_tool

ItemT = TypeVar("ItemT")


def missing_tool(
    name: str,
    *,
    known: Iterable[str],
    starting: Collection[str],
    errors: Mapping[str, Exception],
    prefixes: Mapping[str, str],
) -> ToolError:
    """Return the error for a name that no tool has.

    Args:
        name: The name that was called.
        known: The names there are.
        starting: The servers that are still connecting.
        errors: The servers that failed, and why.
        prefixes: The prefix of each server's tool names.
    """
    for server in sorted({*starting, *errors}, key=len, reverse=True):
        prefix = prefixes.get(server, f"{server}_")
        if not name.startswith(aliases(server, "")) and not (prefix and name.startswith(prefix)):
            continue
        if server in starting:
            text = f"MCP error: server {server!r} is still connecting"
            return ToolError(text, kind=ErrorKind.NOT_SENT, retryable=True)
        return ToolError(f"MCP error: {errors[server]}", kind=getattr(errors[server], "kind", ErrorKind.NOT_FOUND))
    return ToolError(unknown_tool(name, known), kind=ErrorKind.NOT_FOUND)


async def for_each(items: Iterable[ItemT], work: Callable[[ItemT], Awaitable[object]]) -> list[tuple[ItemT, Exception]]:
    """Do `work` for all items concurrently; return those that failed with their errors, in the items' order.

    A failure does not stop the others; cancellation reaches all of them.
    """
    ordered = list(items)
    failures: dict[int, Exception] = {}

    async def one(index: int) -> None:
        try:
            await work(ordered[index])
        except Exception as exc:  # boundary: one server's failure is an outcome
            failures[index] = exc

    async with anyio.create_task_group() as tasks:
        for index in range(len(ordered)):
            tasks.start_soon(one, index)
    return [(ordered[index], failures[index]) for index in sorted(failures)]
