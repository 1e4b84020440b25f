"""The worker's half of tasks in a store: takes one, runs its tool, and writes down what becomes of it.

Two workers never run one task at the same time: a lease says who does, and what is written names its holder. What
clients ask meanwhile is `replica.py`, which may be in any other process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import Any

import anyio

from toolweave.errors import ErrorKind, RequestError, StoreError, ToolError
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_REQUEST
from toolweave.protocol.tasks import failed, updated
from toolweave.serve.request import Json, Request
from toolweave.serve.rounds import Rounds, Work
from toolweave.serve.tasks.board import LEASES, Board, Entry
from toolweave.serve.tasks.home import MARK_SECONDS, perform, too_long
from toolweave.serve.tasks.rules import Rules
from toolweave.serve.tasks.task import Task, TaskCaller
from toolweave.tools.call import IDEMPOTENCY_KEY
from toolweave.tools.spec import ToolSpec
from toolweave.work.lease import LEASE_SECONDS, Lease
from toolweave.work.pause import Pause, Sleep
from toolweave.work.queue import Job, Later

__all__ = ["Prepare", "Worker"]

_log = logging.getLogger("toolweave.serve")

Prepare = Callable[[Request], tuple[ToolSpec, Work]]
"""Finds the tool of a call and what is to be done; raises `RequestError` when there is no such tool."""

HELD_SECONDS = 2.0
"""How long a job waits whose task another worker has."""
MOST_DEATHS = 5
"""How many workers may die while they run one task: it may be what they die of."""
END_TRIES = 20
"""How often the end of a task is written until the queue has to bring it up again; some seconds between."""


class Worker:
    """Runs the tools of tasks, for all servers of this name.

    Args:
        rules: What is done about a task whose worker died.
        rounds: Makes the contexts of handlers.
        board: The tasks of the server.
        prepare: Finds the tools.
        sleep: Waits between looks at what clients do, and between renewals of a lease.
        lease_seconds: How long a task is kept for a worker that says nothing.
    """

    def __init__(
        self,
        rules: Rules,
        *,
        rounds: Rounds,
        board: Board,
        prepare: Prepare,
        sleep: Sleep = anyio.sleep,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._rules = rules
        self._rounds = rounds
        self._board = board
        self._prepare = prepare
        self._sleep = sleep
        self._lease_seconds = lease_seconds

    @property
    def topic(self) -> str:
        """The topic of its jobs."""
        return self._board.topic

    async def do(self, job: Job) -> None:
        """Bring a task to its end; return when it has one, whoever brought it there.

        Raises:
            Later: Another worker has it; when that has died, this one may have it after a while.
            StoreError: It is not at its end, and the store cannot be reached: the job is to be delivered again.
        """
        entry = await self._board.read(job.key)
        if entry is None:
            return
        if not entry.ended:
            await self._hold(entry.name)
        await self._board.tidy(entry)

    async def _hold(self, name: str) -> None:
        store = self._board.store
        lease = Lease(store, LEASES, name, seconds=self._lease_seconds, sleep=self._sleep, strict=True)
        if await lease.take() is not None:
            raise Later(HELD_SECONDS)
        try:
            await self._bring_to_end(name, lease)
        except StoreError:
            raise
        except Exception:  # boundary: what cannot be done must not come back for ever
            _log.exception("a task cannot be done")
            error = RequestError("Internal error", code=INTERNAL_ERROR)
            await self._board.change(name, partial(self._fail, error))
        finally:
            with anyio.move_on_after(MARK_SECONDS, shield=True):
                await lease.release()

    async def _bring_to_end(self, name: str, lease: Lease) -> None:
        found = await self._board.call(name, _Nobody())
        try:
            if found is None:
                raise RequestError("the call of the task is not known any more", code=INTERNAL_ERROR)
            request, more = found
            spec, work = self._prepare(request)
            reruns = self._rules.reruns(spec)
            entry = await self._board.change(name, partial(self._begin, lease, reruns))
        except RequestError as exc:
            await self._board.change(name, partial(self._fail, exc))
            return
        if entry is None or entry.ended:
            return
        if not lease.sure:  # nothing has happened yet
            await self._board.change(name, partial(_hand_back, lease.holder))
            raise _too_slow()
        run = _Run(self._board, entry, lease.holder)
        caller = TaskCaller(run.task, request.client.capabilities, more["given"], request.client.key)
        meta = {IDEMPOTENCY_KEY: sha256(f"task {name}".encode()).hexdigest(), **more["meta"]}
        context = self._rounds.context(request, caller, run.task.progress, meta=meta)
        try:
            kept = await self._run(run, lease, partial(perform, run.task, work, context))
        except BaseException:
            with anyio.move_on_after(MARK_SECONDS, shield=True):
                await self._stopped(run, lease.holder, reruns=reruns)
            raise
        if not kept:
            raise StoreError("the end of a task cannot be written: the store cannot be reached", collection=LEASES)

    def _begin(self, lease: Lease, reruns: bool, entry: Entry) -> bool:
        """Note that the tool runs, from its start.

        Raises:
            RequestError: It ran before, and must not run again.
            StoreError: The store was so slow that another worker may have it.
        """
        if entry.ended:
            return False
        if not lease.sure:
            raise _too_slow()
        if entry.runner is not None:
            entry.deaths += 1
            if not reruns or entry.deaths >= MOST_DEATHS:
                raise _outcome_unknown("died")
        entry.runner = lease.holder
        entry.task = updated(entry.task, self._board.clock(), status="working", statusMessage=None)
        return True

    def _fail(self, error: RequestError, entry: Entry) -> bool:
        if entry.ended:
            return False
        entry.task = failed(entry.task, self._board.clock(), error)
        return True

    async def _run(self, run: _Run, lease: Lease, work: Callable[[], Any]) -> bool:
        """Run the tool beside what renews the lease and what looks at the store; return whether its end is kept."""
        kept = False
        async with anyio.create_task_group() as beside:
            beside.start_soon(lease.keep, run.lose, run.lose)
            beside.start_soon(self._follow, run)
            with run.task.scope, anyio.move_on_after(run.task.left) as bound:
                await work()
            if bound.cancelled_caught:
                run.task.fail(too_long())
            kept = await self._keep_end(run)
            beside.cancel_scope.cancel()
        return kept

    async def _follow(self, run: _Run) -> None:
        """Bring what the tool says to the store, and what clients say there to the tool, until either has ended."""
        pause = Pause(self._sleep)
        while not run.over:
            await pause.wait_for(run.news)
            try:
                if await run.exchange():
                    pause.restart()
            except StoreError as exc:
                _log.warning("a task that runs cannot be looked at: %s", exc)
        run.task.scope.cancel()

    async def _keep_end(self, run: _Run) -> bool:
        """Write how a task ended, or that this cannot be kept; False when it has no end in the store."""
        pause, refused = Pause(self._sleep), 0
        for _ in range(END_TRIES):
            if run.lost:
                return False
            try:
                await self._board.read(run.task.id)  # what cannot be read cannot be reached; else there is no room
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

    async def _stopped(self, run: _Run, holder: str, *, reruns: bool) -> None:
        """Hand a task back for another worker, or write that its tool was stopped if it must not run again."""
        if not reruns:
            run.task.fail(_outcome_unknown("was stopped"))
        try:
            again = reruns and not run.task.ended
            await (self._board.change(run.task.id, partial(_hand_back, holder)) if again else run.exchange())
        except StoreError as exc:
            _log.error("it cannot be noted that a task was stopped: %s", exc)


class _Run:
    """A task that runs here: in the store, and as its handler sees it."""

    def __init__(self, board: Board, entry: Entry, holder: str) -> None:
        self._board = board
        self._holder = holder
        self.news = anyio.Event()
        self.over = self.lost = False
        self.task = Task(entry.task, expires_at=entry.expires_at, now=board.clock, changed=self._heard)

    def _heard(self, task: Task) -> None:
        self.news.set()

    def lose(self) -> None:
        """Stop: another worker has the task, or may have it."""
        self.over = self.lost = True
        self.task.scope.cancel()

    async def exchange(self) -> bool:
        """Take what clients said and write what the tool said; return whether there was any of it.

        Raises:
            StoreError: The store cannot be reached, or has no room.
        """
        self.news = anyio.Event()
        while True:
            entry = await self._board.read(self.task.id)
            if self.lost or entry is None or entry.ended or entry.runner != self._holder:
                self.over = True
                return True
            before = self.task.show()
            self._take(entry)
            shown = self.task.show()
            if shown == entry.task:
                return shown != before
            entry.task = shown
            if await self._board.write(entry):
                self.over = self.task.ended
                return True

    def _take(self, entry: Entry) -> None:
        for key in tuple(self.task.questions):
            if key in entry.refused:
                refused: Mapping[str, Any] = entry.refused[key]
                error = ToolError(refused["message"], kind=ErrorKind.PROTOCOL, data=refused["data"])
                self.task.refuse(key, error)
            elif key in entry.answers:
                try:
                    self.task.answer({key: entry.answers[key]})
                except RequestError:  # it fits the form, but not the model behind it
                    self.task.ask_again(key)


class _Nobody:
    """The line of a call whose client is not here."""

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Do nothing: nobody hears it."""

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
        raise RequestError("the client of a task is not asked directly", code=INVALID_REQUEST)

    async def release(self) -> None:
        """Do nothing: there is no stream."""


def _hand_back(holder: str, entry: Entry) -> bool:
    ours = entry.runner == holder and not entry.ended
    entry.runner = None if ours else entry.runner
    return ours


def _too_slow() -> StoreError:
    return StoreError("the store is too slow for a task to be begun", collection=LEASES)


def _outcome_unknown(what: str) -> RequestError:
    return RequestError(
        f"the worker that ran the tool {what} before its end, so the outcome is unknown; it may have had its effect",
        code=INTERNAL_ERROR,
        data={"reason": "worker_lost"},
    )
