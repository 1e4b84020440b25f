"""Starts tasks from timers and other callbacks of the event loop, which are not tasks themselves.

A task group must be used inside a task: elsewhere anyio may not know which event loop runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVarTuple

import anyio
from anyio.abc import TaskGroup

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
        self._added = anyio.Event()
        tasks.start_soon(self._run)

    def start_soon(self, func: Callable[[*T], Coroutine[Any, Any, object]], /, *args: *T) -> None:
        """Start a task, in the next turn of the event loop."""
        self._due.append((func, args))
        self._added.set()

    async def _run(self) -> None:
        while True:
            # Nothing is awaited between the wait and the exchange of the list, so a function that is added meanwhile
            # is in the old list, or sets the new event.
            await self._added.wait()
            self._added = anyio.Event()
            due = self._due
            self._due = []
            for func, args in due:
                self._tasks.start_soon(func, *args)


_serving: ContextVar[TaskGroup | None] = ContextVar("toolweave-serve-tasks", default=None)


class ServingGroups:
    """The task groups in which a server is served, of every transport and event loop; for work that outlives a request.

    Args:
        subject: The subject of the error without a group, such as `"tasks run"`.
    """

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._groups: list[tuple[asyncio.AbstractEventLoop, TaskGroup]] = []

    @contextmanager
    def within(self, group: TaskGroup) -> Generator[None]:
        """Let work run in a task group until the block ends."""
        self._groups.append(mine := (asyncio.get_running_loop(), group))
        before = _serving.get()
        _serving.set(group)
        try:
            yield
        finally:
            _serving.set(before)
            self._groups.remove(mine)

    def current(self) -> TaskGroup:
        """Return the group for work of the running request: that in whose block it came, else the oldest of its loop.

        Raises:
            RuntimeError: The server is not served on this event loop.
        """
        # The context variable alone would not do: a task that outlives its block keeps the variable, and with it a
        # group that has ended. So it counts only while its block is still open, on this event loop.
        loop = asyncio.get_running_loop()
        serving = _serving.get()
        here = [group for known, group in self._groups if known is loop]
        if not here:
            raise RuntimeError(f"{self._subject} only while their server is served")
        if serving is not None and serving in here:
            return serving
        return here[0]
