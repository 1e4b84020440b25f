"""Starts tasks from timers and other callbacks of the event loop, which are no tasks themselves.

A task group must be used inside a task: elsewhere anyio may not know which event loop runs.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVarTuple

import anyio
from anyio.abc import TaskGroup

__all__ = ["SpawnsTasks", "TaskSpawner"]

T = TypeVarTuple("T")


class SpawnsTasks(Protocol):
    """The interface that starts tasks: a task group, or a spawner where the caller may be no task."""

    def start_soon(self, func: Callable[[*T], Coroutine[Any, Any, object]], /, *args: *T) -> object:
        """Start a task."""
        ...


class TaskSpawner:
    """Starts tasks in a task group for any caller on its event loop; itself a task of the group.

    Args:
        tasks: The task group, whose end also ends this.
    """

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._due: list[tuple[Callable[..., Coroutine[Any, Any, object]], tuple[Any, ...]]] = []
        self._news = anyio.Event()
        tasks.start_soon(self._run)

    def start_soon(self, func: Callable[[*T], Coroutine[Any, Any, object]], /, *args: *T) -> None:
        """Start a task, in the next turn of the event loop."""
        self._due.append((func, args))
        self._news.set()

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            due, self._due = self._due, []
            for func, args in due:
                self._tasks.start_soon(func, *args)
