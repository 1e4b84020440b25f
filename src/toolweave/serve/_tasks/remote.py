"""Tasks in a store, for a server that answers clients: submitted to workers, and polled.

Any number of servers do this with the same tasks. The worker's part is `worker.py`.
"""

# One poller per event loop reads the tasks that are watched, however many requests watch one. A task that changes is
# read often for a while, then less and less often, because most tasks are silent for long. The polling is done by one
# of the waiting requests, the one that holds `_turn`. If it ends or is cancelled, the lock passes to the next request,
# so polling continues as long as anybody waits, and no task outlives the requests.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import anyio
import anyio.abc

from toolweave._json_types import object_or_empty, only_members, without_members
from toolweave.errors import RequestError, StoreError, ToolError
from toolweave.jobs._backoff import FIRST_SECONDS, Sleep, longer, until
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from toolweave.protocol.input_required import INPUT_REQUESTS, INPUT_REQUIRED
from toolweave.protocol.tasks import ENDED, updated
from toolweave.serve._tasks.port import MARK_SECONDS, NewTask, OnTaskChange, TaskHandle
from toolweave.serve._tasks.store import StoredTask, TaskStore, changed_signal
from toolweave.serve.request import Json
from toolweave.tools import Question
from toolweave.tools._client_requests import question_of


@dataclass(slots=True, eq=False)
class _TaskListener:
    on_change: OnTaskChange
    # the last known states of the tasks that have not ended
    known: dict[str, Json]
    done: anyio.Event = field(default_factory=anyio.Event)

    def update(self, name: str, task: Json | None) -> None:
        """Receive the current state of a task; None if it was removed."""
        # A task that has ended is not in `known`. The default makes it equal to itself, so that its end is reported
        # once.
        before = self.known.get(name, task)
        if task is None or task["status"] in ENDED:
            self.known.pop(name, None)
        else:
            self.known[name] = task
        if task is not None and task != before:
            self.on_change(name, task)
        if not self.known:
            self.done.set()


@dataclass(slots=True)
class _Watched:
    listeners: set[_TaskListener] = field(default_factory=set[_TaskListener])
    pause: float = FIRST_SECONDS
    # seconds until the next read
    left: float = 0.0

    def soon(self) -> None:
        """Poll this task next, and often for a while."""
        self.pause = FIRST_SECONDS
        self.left = 0.0


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

    async def watch(self, known: Mapping[str, Json], on_change: OnTaskChange) -> None:
        """Report every change of these tasks until all have ended; an outage of the store is waited out.

        Args:
            known: Their last known states.
            on_change: Called with the id of a changed task, and its state.
        """
        running = {name: task for name, task in known.items() if task["status"] not in ENDED}
        # An ended task does not change any more.
        mine = _TaskListener(on_change, running)
        if not mine.known:
            return
        for name in mine.known:
            watched = self._watched.setdefault(name, _Watched())
            watched.listeners.add(mine)
            # it may have changed since the caller read it
            watched.soon()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._look_for_all)
                # Every listener has a task that waits for the turn to poll: when the one that polls leaves, another
                # continues.
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
        """Poll while this listener is registered, unless another listener does."""
        async with self._turn:
            while True:
                await self._sleep(FIRST_SECONDS)
                try:
                    for name, watched in tuple(self._watched.items()):
                        await self._look(name, watched)
                except StoreError as exc:
                    _log.warning("tasks that are watched cannot be read: %s", exc)

    async def _look(self, name: str, watched: _Watched) -> None:
        watched.left -= FIRST_SECONDS
        if watched.left > 0:
            return
        # Tasks that change rarely are read rarely, which bounds the load that watching puts on the store.
        watched.pause = longer(watched.pause)
        watched.left = watched.pause
        # copied before the read: a listener that is added later may know a newer state
        listeners = tuple(watched.listeners)
        entry = await self._tasks.read(name)
        task = None
        if entry is not None:
            task = entry.task
        if any(task != listener.known.get(name) for listener in listeners):
            watched.soon()
        for listener in listeners:
            listener.update(name, task)
            if entry is None or entry.ended:
                self._leave(name, listener)


_log = logging.getLogger("toolweave.serve")


class RemoteTasks:
    """The backend of tasks that workers run.

    Args:
        tasks: The tasks of the server.
        sleep: Waits between polls of the store.
    """

    def __init__(self, tasks: TaskStore, *, sleep: Sleep = anyio.sleep) -> None:
        self._tasks = tasks
        self._sleep = sleep
        self._watching: WeakKeyDictionary[asyncio.AbstractEventLoop, TaskPoller] = WeakKeyDictionary()

    @contextmanager
    def within(self, group: anyio.abc.TaskGroup) -> Generator[None]:
        """Do nothing: no task runs in this process."""
        yield

    async def start(self, new: NewTask) -> None:
        """Store a task and submit it to the workers.

        Raises:
            RequestError: It cannot be stored, or submitted.
        """
        entry = self._tasks.entry(new)
        try:
            # The task comes first: a worker that gets the job looks for it, and would drop a job without one.
            await self._tasks.add(entry, new)
            await self._tasks.topic.queue.submit(self._tasks.topic.job(entry.name))
        except BaseException as exc:
            # Shielded: a cancelled request would otherwise leave a task that no worker runs and no client can name.
            with anyio.move_on_after(MARK_SECONDS, shield=True):
                await self._forget(entry)
            if not isinstance(exc, StoreError):
                raise
            _log.error("a task cannot be given to a worker: %s", exc)
            raise RequestError("no task can be kept or given to a worker now", code=INTERNAL_ERROR) from None

    async def find(self, name: str, owner: str | None) -> TaskHandle | None:
        """Return a task of this owner.

        Raises:
            StoreError: The store cannot be reached.
        """
        entry = await self._tasks.read(name)
        if entry is None or entry.owner != owner:
            return None
        return _Handle(self._tasks, entry, self._sleep)

    async def watch(self, known: Mapping[str, Json], on_change: OnTaskChange) -> None:
        """Report every change of these tasks until all have ended; an outage of the store is waited out."""
        loop = asyncio.get_running_loop()
        # By loop, since a poller has a lock and events, which belong to one loop; weakly, so that an ended loop is
        # released.
        watching = self._watching.get(loop)
        if watching is None:
            watching = self._watching[loop] = TaskPoller(self._tasks, self._sleep)
        await watching.watch(known, on_change)

    async def _forget(self, entry: StoredTask) -> None:
        # without a permit, nothing was written
        if entry.permit is None:
            return
        try:
            await self._tasks.remove(entry)
        except StoreError as exc:
            _log.debug("a task that was not begun stays until its ttl: %s", exc)


class _Handle:
    """A task in the store, in the state that was read last."""

    def __init__(self, tasks: TaskStore, entry: StoredTask, sleep: Sleep) -> None:
        self._tasks = tasks
        self._entry = entry
        self._sleep = sleep

    @property
    def shown(self) -> Json:
        return dict(self._entry.task)

    @property
    def questions(self) -> Mapping[str, Question]:
        found: dict[str, Question] = {}
        for key, asked in self._asked(self._entry).items():
            found[key] = question_of(asked["method"], asked["params"])
        return found

    @property
    def left(self) -> float:
        return self._entry.expires_at - self._tasks.clock()

    async def answer(self, answers: Mapping[str, Any]) -> None:
        def accept(entry: StoredTask) -> bool:
            asked = self._asked(entry)
            accepted = only_members(answers, asked)
            for key, answer in accepted.items():
                try:
                    question_of(asked[key]["method"], asked[key]["params"]).read(answer)
                except ToolError as exc:
                    raise RequestError(exc.message, code=INVALID_PARAMS) from None
            # Inside the function, because the store calls it again on the newest state when another process has
            # written meanwhile.
            entry.answers |= accepted
            return self._close(entry, accepted)

        await self._change(accept)

    async def refuse(self, key: str, error: RequestError) -> None:
        def mark(entry: StoredTask) -> bool:
            entry.refused[key] = {"message": error.message, "data": error.data}
            return self._close(entry, {key: None})

        await self._change(mark)

    async def cancel(self) -> bool:
        entry, cancelled = await self._tasks.cancel(self._entry.name, "the client cancelled it")
        self._use(entry)
        return cancelled

    async def change(self) -> None:
        before = self._entry.revision

        async def look() -> bool | None:
            self._use(await self._tasks.read(self._entry.name))
            if self._entry.revision == before:
                return None
            return True

        # a task can also end because its time is over, which no signal announces
        await until(self._tasks.store, changed_signal(self._entry.name), look, sleep=self._sleep, last=1.0)

    async def _change(self, change: Callable[[StoredTask], bool]) -> None:
        self._use(await self._tasks.change(self._entry.name, change))

    def _use(self, entry: StoredTask | None) -> None:
        if entry is None:
            raise RequestError("Unknown task", code=INVALID_PARAMS)
        self._entry = entry

    def _close(self, entry: StoredTask, keys: Mapping[str, Any]) -> bool:
        """Remove questions that have an answer now; return whether there were any."""
        asked = self._asked(entry)
        rest = without_members(asked, *keys)
        if len(rest) == len(asked):
            return False
        status = INPUT_REQUIRED if rest else "working"
        now = self._tasks.clock()
        entry.task = updated(entry.task, now, status=status, statusMessage=None, **{INPUT_REQUESTS: rest or None})
        return True

    @staticmethod
    def _asked(entry: StoredTask) -> Json:
        return dict(object_or_empty(entry.task.get(INPUT_REQUESTS)))
