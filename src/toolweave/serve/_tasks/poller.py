"""A poller that tells the listeners of a process of tasks that run elsewhere: it looks once for all of them.

Each task is looked at by itself, rarely while nothing happens to it, and one after the other: however many clients
listen to however many tasks, no more than one question at a time is on its way. Knows no client.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio

from toolweave.errors import StoreError
from toolweave.jobs._backoff import FIRST_SECONDS, Sleep, longer
from toolweave.protocol.tasks import ENDED
from toolweave.serve._request import Json
from toolweave.serve._tasks.port import Heard
from toolweave.serve._tasks.store import TaskStore

__all__ = ["TaskPoller"]

_log = logging.getLogger("toolweave.serve")


@dataclass(slots=True, eq=False)
class _TaskListener:
    heard: Heard
    known: dict[str, Json]  # those that have not ended, as this one knows them
    done: anyio.Event = field(default_factory=anyio.Event)

    def tell(self, name: str, task: Json | None) -> None:
        """Receive the current state of a task; None when it is gone."""
        before = self.known.get(name, task)
        if task is None or task["status"] in ENDED:
            self.known.pop(name, None)
        else:
            self.known[name] = task
        if task is not None and task != before:
            self.heard(name, task)
        if not self.known:
            self.done.set()


@dataclass(slots=True)
class _Watched:
    listeners: set[_TaskListener] = field(default_factory=set[_TaskListener])
    pause: float = FIRST_SECONDS
    left: float = 0.0  # until the next look

    def soon(self) -> None:
        """Poll this task next, and often for a while."""
        self.pause, self.left = FIRST_SECONDS, 0.0


class TaskPoller:
    """The polled tasks of one event loop.

    Args:
        tasks: The tasks.
        sleep: Waits between polls.
    """

    def __init__(self, tasks: TaskStore, sleep: Sleep) -> None:
        self._tasks = tasks
        self._sleep = sleep
        self._watched: dict[str, _Watched] = {}
        self._turn = anyio.Lock()

    async def watch(self, known: Mapping[str, Json], heard: Heard) -> None:
        """Report every change of these tasks until all have ended; an outage of the store is waited out.

        Args:
            known: Their last known states.
            heard: Called with the id of a changed task, and its state.
        """
        mine = _TaskListener(heard, {name: task for name, task in known.items() if task["status"] not in ENDED})
        if not mine.known:
            return
        for name in mine.known:
            watched = self._watched.setdefault(name, _Watched())
            watched.listeners.add(mine)
            watched.soon()  # it may have changed since this one looked
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._look_for_all)
                await mine.done.wait()
                tasks.cancel_scope.cancel()
        finally:
            for name in known:
                self._leave(name, mine)

    def _leave(self, name: str, listener: _TaskListener) -> None:
        watched = self._watched.get(name)
        if watched is not None:
            watched.listeners.discard(listener)
            if not watched.listeners:
                del self._watched[name]

    async def _look_for_all(self) -> None:
        """Poll while this listener is registered, unless another does; the task that waits longest is next."""
        async with self._turn:
            while True:
                await self._sleep(FIRST_SECONDS)
                try:
                    for name, watched in tuple(self._watched.items()):
                        await self._look(name, watched)
                except StoreError as exc:
                    _log.warning("tasks that are listened to cannot be looked at: %s", exc)

    async def _look(self, name: str, watched: _Watched) -> None:
        watched.left -= FIRST_SECONDS
        if watched.left > 0:
            return
        watched.pause = watched.left = longer(watched.pause)
        listeners = tuple(watched.listeners)  # who comes meanwhile may know of something newer
        entry = await self._tasks.read(name)
        task = None if entry is None else entry.task
        if any(task != listener.known.get(name) for listener in listeners):
            watched.soon()
        for listener in listeners:
            listener.tell(name, task)
            if entry is None or entry.ended:
                self._leave(name, listener)
