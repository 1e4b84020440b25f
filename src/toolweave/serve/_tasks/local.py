"""Tasks of this process: they run in the task groups in which the server is served, and end with them.

Only how they began and ended is in a store. Knows neither rules nor methods.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
import anyio.abc

from toolweave.errors import ErrorKind, RequestError, StoreError, ToolError
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from toolweave.serve._changes import Changes, Topic
from toolweave.serve._request_context import HandlerRunner, Work
from toolweave.serve._task_spawner import ServingGroups
from toolweave.serve._tasks.port import (
    KEPT_AT_LEAST,
    MARK_SECONDS,
    NewTask,
    OnTaskChange,
    TaskHandle,
    full,
    perform,
    too_long,
)
from toolweave.serve._tasks.task import TOLD_BY, RunningTask, TaskCaller
from toolweave.serve.request import Json
from toolweave.state import MemoryStore, Store
from toolweave.tools import CallContext, Question

_log = logging.getLogger("toolweave.serve")

COLLECTION = "tasks"


class DocumentSeal(Protocol):
    """Encrypts values in a store, bound to the names of their documents."""

    def sealed(self, value: object, bound: str) -> str:
        """Return a JSON value as a text for the store."""
        ...

    def opened(self, text: object, bound: str) -> Any:
        """Return the value of such a text; None for any other."""
        ...


class LocalTasks:
    """The backend of tasks that run in this process.

    Args:
        runner: Makes the contexts of handlers.
        changes: Notifies listening clients.
        store: Keeps ended tasks; by default in this process.
        max_running: Maximum running tasks; the store bounds those that are kept.
        clock: Returns the time in seconds since the epoch.
        seal: Encrypts the values in the store; None leaves them readable there.
    """

    def __init__(
        self,
        *,
        runner: HandlerRunner,
        changes: Changes,
        store: Store | None = None,
        max_running: int = 1000,
        clock: Callable[[], float] = time.time,
        seal: DocumentSeal | None = None,
    ) -> None:
        self._runner = runner
        self._changes = changes
        # Ended tasks stay until they expire. Ten for each that may run bound the memory of a server whose tasks are
        # short and are kept for long.
        if store is None:
            self._store = MemoryStore(max_documents=10 * max_running, clock=clock)
        else:
            self._store = store
        self._max_running = max_running
        self._clock = clock
        self._seal = seal
        self._running: dict[str, _Running] = {}
        self._groups = ServingGroups("tasks run")

    @contextmanager
    def within(self, group: anyio.abc.TaskGroup) -> Generator[None]:
        """Let tasks run in a task group until the block ends; those that still run then are cancelled.

        Tasks of requests that came in the block, or in tasks begun in it, run there; others in the group that has been
        there longest.
        """
        try:
            with self._groups.within(group):
                yield
        finally:
            for running in tuple(self._running.values()):
                if running.group is group:
                    running.task.scope.cancel()

    async def start(self, new: NewTask) -> None:
        """Start the work.

        Raises:
            RequestError: Too many run.
        """
        # Before anything is made: a refused call must leave nothing behind.
        if len(self._running) >= self._max_running:
            raise full()
        group = self._groups.current()
        client = new.request.client
        task = RunningTask(new.shown, expires_at=new.expires_at, now=self._clock, changed=self._notify)
        caller = TaskCaller(task, new.request, new.given, self._runner)
        context = self._runner.context(new.request, caller, task.progress)
        # Counted before the store is asked, which takes time: calls that come meanwhile would all pass the check
        # above.
        running = self._running[task.id] = _Running(task, client.principal, group)
        try:
            await self._keep(running)
        # Also a cancelled request: it never got the id, so no client could ever ask for this task.
        except BaseException as exc:
            del self._running[task.id]
            if isinstance(exc, StoreError):
                raise full() from None
            raise
        group.start_soon(self._run, running, new.work, context)

    async def find(self, name: str, owner: str | None) -> TaskHandle | None:
        """Return a task of this owner, running or ended, or None."""
        # This process knows more than the store, which has the state of the start until the task ends.
        if name in self._running:
            return self.running(name, owner)
        document = await self._store.get(COLLECTION, name)
        value = None if document is None else document.value
        if value is not None and self._seal is not None:
            value = self._seal.opened(value, f"task {name}")
        # A task of another owner is reported like one that does not exist, so that ids cannot be guessed.
        if value is None or value["owner"] != owner:
            return None
        return _Kept(value["task"])

    def running(self, name: str, owner: str | None) -> TaskHandle | None:
        """Return a task of this owner that runs in this process, or None."""
        running = self._running.get(name)
        if running is not None and running.owner == owner:
            return running
        return None

    async def watch(self, known: Mapping[str, Json], on_change: OnTaskChange) -> None:
        """Do nothing: tasks of this process report their own changes."""

    async def _run(self, running: _Running, work: Work, context: CallContext) -> None:
        try:
            if not await self._ran(running, work, context):
                # its end is reported from this loop
                # Neither store nor record has the end. The task stays in this process for as long as its client may
                # ask.
                await anyio.sleep(max(0.0, running.left))
        finally:
            del self._running[running.task.id]

    async def _ran(self, running: _Running, work: Work, context: CallContext) -> bool:
        """Run a task; return whether its end is stored."""
        task = running.task
        kept = False
        try:
            with task.scope, anyio.move_on_after(task.left) as bound:
                await perform(task, work, context)
            # Not the case when the client cancelled the task: that sets the end itself.
            if bound.cancelled_caught:
                task.fail(too_long())
        finally:
            # Does nothing for a task that has an end. Only a server that stops comes here without one.
            task.end("cancelled", "the server stopped")
            # Shielded: a server that stops still says how its tasks ended, within a bound, to clients that ask its
            # successor.
            with anyio.move_on_after(MARK_SECONDS, shield=True):
                kept = await self._keep_end(running)
        return kept

    async def _keep(self, running: _Running) -> None:
        value: Any = {"owner": running.owner, "task": running.task.show()}
        if self._seal is not None:
            value = self._seal.sealed(value, f"task {running.task.id}")
        await self._store.put(COLLECTION, running.task.id, value, ttl=max(running.left, KEPT_AT_LEAST))

    async def _keep_end(self, running: _Running) -> bool:
        """Store the end of a task, or an error that it cannot be stored; False when the store accepts neither."""
        try:
            await self._keep(running)
        except Exception as exc:  # boundary: a store may be of any origin, and its error would end every task
            _log.error("the end of a task cannot be kept: %s", exc)
            # A result may be too large for the store, or of a kind that it cannot keep; an error is small and plain.
            running.task.fail(RequestError("the outcome cannot be kept", code=INTERNAL_ERROR), anew=True)
            try:
                await self._keep(running)
            except Exception:  # boundary: as above
                _log.exception("nor can be kept that it failed")
                return False
        return True

    def _notify(self, task: RunningTask) -> None:
        self._changes.publish(Topic(TOLD_BY, task.id), task.show())


@dataclass(frozen=True, slots=True)
class _Running:
    """A running task of this process, and its caller."""

    task: RunningTask
    owner: str | None
    group: anyio.abc.TaskGroup

    @property
    def shown(self) -> Json:
        return self.task.show()

    @property
    def questions(self) -> Mapping[str, Question]:
        return self.task.questions

    @property
    def left(self) -> float:
        return self.task.left

    async def answer(self, answers: Mapping[str, Any]) -> None:
        self.task.answer(answers)

    async def refuse(self, key: str, error: RequestError) -> None:
        self.task.refuse(key, ToolError(error.message, kind=ErrorKind.PROTOCOL, data=error.data))

    async def cancel(self) -> bool:
        # The state changes first. Work that ends in the same moment has lost, and its client never sees two ends.
        ended = self.task.end("cancelled", "the client cancelled it")
        if ended:
            self.task.scope.cancel()
        return ended

    async def change(self) -> None:
        await self.task.change()


@dataclass(frozen=True, slots=True)
class _Kept:
    """A task of this process that has ended."""

    shown: Json
    questions: Mapping[str, Question] = field(default_factory=dict[str, Question])
    left: float = 0.0

    async def answer(self, answers: Mapping[str, Any]) -> None: ...

    async def refuse(self, key: str, error: RequestError) -> None: ...

    async def cancel(self) -> bool:
        return False

    async def change(self) -> None:
        raise RequestError(f"the task is {self.shown['status']}", code=INVALID_PARAMS)
