"""Tasks as a kind of durable job: a worker runs the tool, and records its outcome.

The lease of a task, and the recovery when its worker dies, are the engine's (`jobs/worker.py`). Every write while a
tool runs names the holder of its lease, so that a worker which lost it writes nothing. Requests of clients meanwhile
are in `remote.py`, which may be in any other process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from hashlib import sha256
from typing import Any

import anyio

from toolweave.errors import ErrorKind, RequestError, StoreError, ToolError
from toolweave.jobs import Job, Lease, Reschedule
from toolweave.jobs._backoff import Backoff, Sleep
from toolweave.jobs._lease import LEASE_SECONDS
from toolweave.jobs._worker import HELD_SECONDS
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_REQUEST
from toolweave.protocol.tasks import failed, updated
from toolweave.serve._request_context import HandlerRunner, Work
from toolweave.serve._tasks.port import MARK_SECONDS, perform, too_long
from toolweave.serve._tasks.rules import TaskRules
from toolweave.serve._tasks.store import TASKS, StoredTask, TaskStore
from toolweave.serve._tasks.task import RunningTask, TaskCaller
from toolweave.serve.request import Json, Request
from toolweave.state import Document
from toolweave.tools import IDEMPOTENCY_KEY, ToolSpec

_log = logging.getLogger("toolweave.serve")

Prepare = Callable[[Request], tuple[ToolSpec, Work]]
"""Returns the tool of a call and its handler; raises `RequestError` if it is unknown."""

END_TRIES = 20
"""Attempts to store the end of a task, some seconds apart, before the queue has to deliver the job again."""


class TaskJobs:
    """The tasks of all servers of one name, as a `JobKind`.

    Args:
        rules: The recovery of a task whose worker died.
        runner: Makes the contexts of handlers.
        tasks: The tasks of the server.
        prepare: Finds the tools.
        running: Returns a context manager that is entered while a tool runs.
        sleep: Waits between polls of the store, and between renewals of a lease.
        lease_seconds: The lifetime of a lease that is not renewed.
    """

    records = TASKS

    def __init__(
        self,
        rules: TaskRules,
        *,
        runner: HandlerRunner,
        tasks: TaskStore,
        prepare: Prepare,
        running: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
        sleep: Sleep = anyio.sleep,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self.topic = tasks.topic
        self._rules = rules
        self._runner = runner
        self._tasks = tasks
        self._prepare = prepare
        self._running = running
        self._sleep = sleep
        self._lease_seconds = lease_seconds

    def details(self, key: str) -> Sequence[tuple[str, str]]:
        """Return nothing: the call of a task is read by the holder of its lease."""
        return ()

    def load(self, record: Document, details: Sequence[Document | None] = ()) -> StoredTask:
        """Return a task.

        Raises:
            StoreError: It is another server's, or another version wrote it.
        """
        entry = self._tasks.loaded(record)
        if entry is None:
            raise StoreError(f"task {record.key!r} is another server's, or one of another version")
        return entry

    def has_begun(self, record: StoredTask) -> bool:
        """Whether a worker runs it, or ran it and died."""
        return record.runner is not None

    def has_ended(self, record: StoredTask) -> bool:
        """Whether its status is final."""
        return record.ended

    async def perform(self, record: StoredTask, job: Job) -> None:
        """Run the tool of a task and write down its end.

        Raises:
            Later: Another worker has taken it.
            StoreError: It is not at its end, and the store cannot be reached: the job is to be delivered again.
        """
        failure: Exception | None = None
        async with self._running():
            try:
                await self._hold(record.name)
            except Exception as exc:  # boundary: kept out of the task group, which would wrap it
                failure = exc
        if failure is not None:
            raise failure
        # The queue forgets the job when this returns, so the store has the last word on whether the task has ended.
        now = await self._tasks.read(record.name)
        # else another worker began it, and will end it
        if now is not None and now.ended:
            await self.clean(now)

    def stop(self) -> None:
        """Do nothing: a tool has no place at which it could be handed over."""

    async def cancel(self, record: StoredTask) -> None:
        """Record that a task was cancelled."""
        await self._tasks.cancel(record.name, "it was cancelled")

    async def give_up(self, record: StoredTask, deaths: int) -> None:
        """Record that a task has failed, as so many workers died of it."""
        await self._tasks.change(record.name, partial(self._fail, _outcome_unknown("died")))

    async def sweep(self) -> None:
        """Do nothing: tasks expire by themselves."""

    async def clean(self, record: StoredTask) -> None:
        """Delete the unneeded parts of a task that has ended; it makes room for another."""
        await self._tasks.tidy(record)

    async def _hold(self, name: str) -> None:
        lease = self.topic.lease(name, seconds=self._lease_seconds, sleep=self._sleep, strict=True)
        if not (await lease.acquire()).acquired:
            raise Reschedule(HELD_SECONDS)
        try:
            await self._bring_to_end(name, lease)
        except StoreError:
            raise
        except Exception:  # boundary: a job that cannot run must not come back forever
            _log.exception("a task cannot be done")
            error = RequestError("Internal error", code=INTERNAL_ERROR)
            await self._tasks.change(name, partial(self._fail, error))
        finally:
            # Shielded: a worker that is stopped releases its lease, and another one need not wait until it expires.
            # Bounded: the store may be what failed.
            with anyio.move_on_after(MARK_SECONDS, shield=True):
                await lease.release()

    async def _bring_to_end(self, name: str, lease: Lease) -> None:
        found = await self._tasks.call(name, _NoClient())
        try:
            if found is None:
                raise RequestError("the call of the task is not known any more", code=INTERNAL_ERROR)
            request, more = found
            spec, work = self._prepare(request)
            reruns = self._rules.reruns(spec)
            entry = await self._tasks.change(name, partial(self._begin, lease, reruns))
        except RequestError as exc:
            await self._tasks.change(name, partial(self._fail, exc))
            return
        if entry is None or entry.ended:
            return
        if not lease.sure:  # nothing has happened yet
            await self._tasks.change(name, partial(_hand_back, lease.holder))
            raise _too_slow()
        # From here the tool may have an effect. `_begin` has written the holder into the task before: if this process
        # dies now, the next worker sees that the tool ran, and repeats it only if the tool may be repeated. The key
        # below is the same for each repetition, so that a tool can recognise its own earlier effect.
        run = _TaskRun(self._tasks, entry, lease.holder)
        caller = TaskCaller(run.task, request, more["given"], self._runner)
        meta = {IDEMPOTENCY_KEY: sha256(f"task {name}".encode()).hexdigest(), **more["meta"]}
        context = self._runner.context(request, caller, run.task.progress, meta=meta)
        kept = False
        async with lease.kept(_nothing):
            try:
                kept = await self._run(run, partial(perform, run.task, work, context))
            except BaseException:
                # With a lost lease the task is another worker's: whatever we wrote could destroy what that one did.
                if not lease.lost:
                    with anyio.move_on_after(MARK_SECONDS, shield=True):
                        await self._stopped(run, lease.holder, reruns=reruns)
                raise
        if not kept:
            if lease.lost:
                why = "another worker has it, or may have it"
            else:
                why = "the store cannot be reached"
            raise StoreError(f"the end of a task cannot be written: {why}", collection=TASKS)

    def _begin(self, lease: Lease, reruns: bool, entry: StoredTask) -> bool:
        """Record that the tool runs, from its start.

        Raises:
            RequestError: It ran before, and must not run again.
            StoreError: The store was so slow that another worker may have it.
        """
        if entry.ended:
            return False
        if not lease.sure:
            raise _too_slow()
        if entry.runner is not None and not reruns:
            raise _outcome_unknown("died")
        entry.runner = lease.holder
        entry.task = updated(entry.task, self._tasks.clock(), status="working", statusMessage=None)
        return True

    def _fail(self, error: RequestError, entry: StoredTask) -> bool:
        if entry.ended:
            return False
        entry.task = failed(entry.task, self._tasks.clock(), error)
        return True

    async def _run(self, run: _TaskRun, work: Callable[[], Any]) -> bool:
        """Run the tool beside the poll of the store; return whether its end is kept."""
        kept = False
        # The deadline is for the tool alone. Its end is kept after the scope has closed, so a tool that ends in time
        # is not cancelled while its result is being written.
        async with anyio.create_task_group() as beside:
            beside.start_soon(self._follow, run)
            with run.task.scope, anyio.move_on_after(run.task.left) as bound:
                await work()
            if bound.cancelled_caught:
                run.task.fail(too_long())
            kept = await self._keep_end(run)
            beside.cancel_scope.cancel()
        return kept

    async def _follow(self, run: _TaskRun) -> None:
        """Copy the tool's state to the store, and the clients' answers to the tool, until either has ended."""
        # Read often after a change and ever less often in silence. The tool's own news end the wait at once; those of
        # the client arrive with the next look.
        pause = Backoff(self._sleep)
        while not run.over:
            await pause.wait_for(run.news)
            try:
                if await run.exchange():
                    pause.restart()
            except StoreError as exc:
                _log.warning("a task that runs cannot be looked at: %s", exc)
        run.task.scope.cancel()

    async def _keep_end(self, run: _TaskRun) -> bool:
        """Store the end of a task, or an error that it cannot be stored; False when neither was stored."""
        pause = Backoff(self._sleep)
        refused = 0
        for _ in range(END_TRIES):
            try:
                # a failed read means an outage; else the store is full
                await self._tasks.read(run.task.id)
                try:
                    await run.exchange()
                except StoreError as exc:
                    refused += 1
                    _log.error("the end of a task cannot be kept: %s", exc)
                    if refused > 1:
                        run.task.fail(RequestError("the outcome cannot be kept", code=INTERNAL_ERROR), anew=True)
                else:
                    return True
            except StoreError as exc:
                _log.warning("the end of a task waits for the store: %s", exc)
            await pause.wait()
        return False

    async def _stopped(self, run: _TaskRun, holder: str, *, reruns: bool) -> None:
        """Hand a task back for another worker, or record its end: its outcome, or that its tool was stopped.

        Try again while the store refuses that, until this is cancelled: only this process knows the outcome.
        """
        if not reruns:
            run.task.fail(_outcome_unknown("was stopped"))
        pause = Backoff(self._sleep)
        while True:
            try:
                if reruns and not run.task.ended:
                    await self._tasks.change(run.task.id, partial(_hand_back, holder))
                else:
                    await run.exchange()
            except StoreError as exc:
                _log.warning("it cannot be noted yet that a task was stopped: %s", exc)
            else:
                return
            await pause.wait()


class _TaskRun:
    """A task that this worker runs: its record in the store, and its state in this process."""

    def __init__(self, tasks: TaskStore, entry: StoredTask, holder: str) -> None:
        self._tasks = tasks
        self._holder = holder
        self.news = anyio.Event()
        self.over = False
        self.task = RunningTask(entry.task, expires_at=entry.expires_at, now=tasks.clock, changed=self._heard)

    def _heard(self, task: RunningTask) -> None:
        self.news.set()

    async def exchange(self) -> bool:
        """Read the clients' answers and store the tool's state; return whether anything changed.

        Raises:
            StoreError: The store cannot be reached, or has no room.
        """
        # The event is replaced before the state is shown: what changes during the write sets the new one, and is
        # written by the next exchange.
        self.news = anyio.Event()
        # Compare and set: a client that answers or cancels meanwhile makes our write fail, and both are merged into
        # what it wrote. A cancelled task has ended, and is not written again.
        while True:
            entry = await self._tasks.read(self.task.id)
            if entry is None or entry.ended or entry.runner != self._holder:
                self.over = True
                return True
            before = self.task.show()
            self._take(entry)
            shown = self.task.show()
            if shown == entry.task:
                return shown != before
            entry.task = shown
            if await self._tasks.write(entry):
                self.over = self.task.ended
                return True

    def _take(self, entry: StoredTask) -> None:
        for key in tuple(self.task.questions):
            if key in entry.refused:
                refused: Mapping[str, Any] = entry.refused[key]
                error = ToolError(refused["message"], kind=ErrorKind.PROTOCOL, data=refused["data"])
                self.task.refuse(key, error)
            elif key in entry.answers:
                try:
                    self.task.answer({key: entry.answers[key]})
                except RequestError:
                    # it fits the form, but not the model behind it
                    self.task.ask_again(key)


class _NoClient:
    """The reply channel of a call whose client is not connected to this process."""

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Do nothing: no client is connected."""

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
        raise RequestError("the client of a task is not asked directly", code=INVALID_REQUEST)

    async def release(self) -> None:
        """Do nothing: a worker has no stream."""


def _hand_back(holder: str, entry: StoredTask) -> bool:
    ours = entry.runner == holder and not entry.ended
    entry.runner = None if ours else entry.runner
    return ours


def _nothing() -> None:
    """Ignore a wish to cancel by the lease: a client that cancels a task writes so into it."""


def _too_slow() -> StoreError:
    return StoreError("the store is too slow for a task to be begun", collection=TASKS)


def _outcome_unknown(what: str) -> RequestError:
    return RequestError(
        f"the worker that ran the tool {what} before its end, so the outcome is unknown; it may have had its effect",
        code=INTERNAL_ERROR,
        data={"reason": "worker_lost"},
    )
