"""Tasks at home in a store, as a server sees them that answers clients: given to workers, and looked at.

Any number of servers do this to the same tasks. What a worker does is `worker.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from weakref import WeakKeyDictionary

import anyio
import anyio.abc

from toolweave.errors import RequestError, StoreError, ToolError
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from toolweave.protocol.input_required import INPUT_REQUESTS, INPUT_REQUIRED
from toolweave.protocol.tasks import updated
from toolweave.serve.request import Json
from toolweave.serve.tasks.board import Board, Entry
from toolweave.serve.tasks.home import MARK_SECONDS, Found, Heard, NewTask
from toolweave.serve.tasks.watching import Watching
from toolweave.tools.questions import Question, question_of
from toolweave.work.pause import Pause, Sleep
from toolweave.work.queue import WorkQueue

__all__ = ["Replica"]

_log = logging.getLogger("toolweave.serve")


class Replica:
    """The home of tasks that workers run.

    Args:
        board: The tasks of the server.
        queue: Where workers find what is to be done.
        sleep: Waits between looks at what others do.
    """

    def __init__(self, board: Board, queue: WorkQueue, *, sleep: Sleep = anyio.sleep) -> None:
        self._board = board
        self._queue = queue
        self._sleep = sleep
        self._watching: WeakKeyDictionary[asyncio.AbstractEventLoop, Watching] = WeakKeyDictionary()

    @contextmanager
    def within(self, group: anyio.abc.TaskGroup) -> Generator[None]:
        """Do nothing: no task runs here."""
        yield

    async def start(self, new: NewTask) -> None:
        """Keep a task and have a worker do it.

        Raises:
            RequestError: It cannot be kept, or given to a worker.
        """
        entry = self._board.entry(new)
        try:
            await self._board.add(entry, new)
            await self._queue.submit(self._board.job(entry.name))
        except BaseException as exc:
            with anyio.move_on_after(MARK_SECONDS, shield=True):
                await self._forget(entry)
            if not isinstance(exc, StoreError):
                raise
            _log.error("a task cannot be given to a worker: %s", exc)
            raise RequestError("no task can be kept or given to a worker now", code=INTERNAL_ERROR) from None

    async def find(self, name: str, owner: str | None) -> Found | None:
        """Return a task of this owner.

        Raises:
            StoreError: The store cannot be reached.
        """
        entry = await self._board.read(name)
        return None if entry is None or entry.owner != owner else _Shared(self._board, entry, self._sleep)

    async def watch(self, known: Mapping[str, Json], heard: Heard) -> None:
        """Tell of every change of these tasks until all have ended; an outage of the store is waited out."""
        loop = asyncio.get_running_loop()
        watching = self._watching.get(loop)
        if watching is None:
            watching = self._watching[loop] = Watching(self._board, self._sleep)
        await watching.watch(known, heard)

    async def _forget(self, entry: Entry) -> None:
        if entry.place is None:
            return  # nothing was written
        try:
            await self._board.remove(entry)
        except StoreError as exc:
            _log.debug("a task that was not begun stays until its ttl: %s", exc)


class _Shared:
    """A task in the store, as it was when it was last looked at."""

    def __init__(self, board: Board, entry: Entry, sleep: Sleep) -> None:
        self._board = board
        self._entry = entry
        self._sleep = sleep

    @property
    def shown(self) -> Json:
        return dict(self._entry.task)

    @property
    def questions(self) -> Mapping[str, Question]:
        return {key: question_of(asked["method"], asked["params"]) for key, asked in self._asked(self._entry).items()}

    @property
    def left(self) -> float:
        return self._entry.expires_at - self._board.clock()

    async def answer(self, answers: Mapping[str, Any]) -> None:
        def take(entry: Entry) -> bool:
            asked = self._asked(entry)
            taken = {key: answer for key, answer in answers.items() if key in asked}
            for key, answer in taken.items():
                try:
                    question_of(asked[key]["method"], asked[key]["params"]).read(answer)
                except ToolError as exc:
                    raise RequestError(exc.message, code=INVALID_PARAMS) from None
            entry.answers |= taken
            return self._close(entry, taken)

        await self._change(take)

    async def refuse(self, key: str, error: RequestError) -> None:
        def take(entry: Entry) -> bool:
            entry.refused[key] = {"message": error.message, "data": error.data}
            return self._close(entry, {key: None})

        await self._change(take)

    async def cancel(self) -> bool:
        cancelled = False

        def take(entry: Entry) -> bool:
            nonlocal cancelled
            cancelled = not entry.ended
            if cancelled:
                said = "the client cancelled it"
                entry.task = updated(entry.task, self._board.clock(), status="cancelled", statusMessage=said)
            return cancelled

        await self._change(take)
        return cancelled

    async def change(self) -> None:
        before, pause = self._entry.revision, Pause(self._sleep)
        while self._entry.revision == before:
            await pause.wait()
            await self._change(lambda entry: False)

    async def _change(self, change: Callable[[Entry], bool]) -> None:
        entry = await self._board.change(self._entry.name, change)
        if entry is None:
            raise RequestError("Unknown task", code=INVALID_PARAMS)
        self._entry = entry

    def _close(self, entry: Entry, keys: Mapping[str, Any]) -> bool:
        """Take questions away that need no answer any more; return whether there were any."""
        asked = self._asked(entry)
        rest = {key: one for key, one in asked.items() if key not in keys}
        if len(rest) == len(asked):
            return False
        status = INPUT_REQUIRED if rest else "working"
        now = self._board.clock()
        entry.task = updated(entry.task, now, status=status, statusMessage=None, **{INPUT_REQUESTS: rest or None})
        return True

    @staticmethod
    def _asked(entry: Entry) -> Json:
        return cast("Json", entry.task.get(INPUT_REQUESTS, {}))
