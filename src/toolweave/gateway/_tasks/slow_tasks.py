"""The tasks that slow calls have become: each runs in its own replica, and is known to all that share a store.

The id of a task names its replica, which is asked for its state. A task whose replica is gone has failed:
its call died with it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import anyio.abc

from toolweave.errors import RequestError
from toolweave.gateway._replicas.replicas import ReplicaGone, Replicas, UnknownToReplica
from toolweave.jobs.retention import TASK_SECONDS, milliseconds
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from toolweave.protocol.tasks import ENDED, failed
from toolweave.serve._changes import Changes, nothing_to_end
from toolweave.serve._request_context import HandlerRunner
from toolweave.serve._tasks import LocalTasks, TasksFeature
from toolweave.serve._tasks.port import NewTask, OnTaskChange, TaskHandle
from toolweave.serve.request import Json
from toolweave.state import Store
from toolweave.tools import Question

_KIND = "slow task"


class SlowTasks:
    """The `TaskBackend` of slow calls.

    Args:
        runner: Makes the contexts of tasks.
        changes: Notifies listening clients.
        store: Keeps how tasks began and ended; by default that of the replicas, else this process.
        replicas: The other replicas; None if no store is shared.
        seconds: Seconds from the start of a task until it is cancelled, and its result may be deleted.

    Attributes:
        feature: Answers the requests of callers about them.
        store: The store that was given, which has to be open; None for another.
    """

    def __init__(
        self,
        *,
        runner: HandlerRunner,
        changes: Changes,
        store: Store | None = None,
        replicas: Replicas | None = None,
        seconds: float = TASK_SECONDS,
    ) -> None:
        self.store = store
        self._replicas = replicas
        if store is None and replicas is not None:
            kept = replicas.store
        else:
            kept = store
        self._local = LocalTasks(runner=runner, changes=changes, store=kept, seal=replicas)
        self.feature: TasksFeature = TasksFeature(
            {}, runner=runner, backend=self, ttl_ms=milliseconds(seconds), always=True, new_id=self._new_id
        )

    def _new_id(self) -> str:
        own = secrets.token_urlsafe(24)
        if self._replicas is None:
            return own
        return f"{self._replicas.id}.{own}"

    def listen(self) -> Callable[[], object]:
        """Answer other replicas from now on; return a function that ends that."""
        if self._replicas is None:
            return nothing_to_end
        return self._replicas.on(_KIND, self._asked)

    def is_elsewhere(self, name: str) -> bool:
        """Return whether a task is of another replica, which does not notify this one of its changes."""
        return self._replicas is not None and name.partition(".")[0] != self._replicas.id

    def within(self, group: anyio.abc.TaskGroup) -> AbstractContextManager[None]:
        """Run tasks in a task group until the block ends."""
        return self._local.within(group)

    async def start(self, new: NewTask) -> None:
        """Take a task on: it is in the store before its caller can know of it.

        Raises:
            RequestError: Too many run, or the store is away.
        """
        await self._local.start(new)

    async def find(self, name: str, owner: str | None) -> TaskHandle | None:
        """Return a task of this owner as it is now, or None."""
        found = await self._local.find(name, owner)
        if found is None or found.shown["status"] in ENDED or not self.is_elsewhere(name):
            return found
        try:
            return _TaskElsewhere(self, name, owner, await self.ask(name, owner))
        except ReplicaGone:
            error = RequestError(
                "the process of the gateway in which this call ran has ended: the outcome is unknown",
                code=INTERNAL_ERROR,
            )
            return _TaskElsewhere(self, name, owner, failed(dict(found.shown), time.time(), error))
        except UnknownToReplica:  # it has ended meanwhile
            return await self._local.find(name, owner)

    async def watch(self, known: Mapping[str, Json], on_change: OnTaskChange) -> None:
        """Do nothing: tasks of this process report their own changes, those of others are asked for."""

    async def ask(self, name: str, owner: str | None, **action: Any) -> Json:
        """Ask the replica of a task to act on it, and return how the task is then.

        Raises:
            ReplicaGone: It does not live any more.
            UnknownToReplica: The task does not run there any more.
            RequestError: The store is away, or it refused.
        """
        assert self._replicas is not None
        reply = await self._replicas.ask(name.partition(".")[0], _KIND, {"name": name, "owner": owner, **action})
        if "refused" in reply:
            raise RequestError(reply["refused"], code=INVALID_PARAMS)
        return reply["task"]

    async def _asked(self, body: Json) -> Json | None:
        """Apply a request of another replica to a task of this one; None when it does not run in this replica."""
        found = self._local.running(str(body["name"]), body["owner"])
        if found is None:
            return None
        try:
            if "answers" in body:
                await found.answer(body["answers"])
            elif "cancel" in body:
                await found.cancel()
        except RequestError as exc:
            return {"refused": exc.message}
        return {"task": found.shown}


@dataclass(frozen=True, slots=True)
class _TaskElsewhere:
    """A task of another replica."""

    tasks: SlowTasks
    name: str
    owner: str | None
    shown: Json
    questions: Mapping[str, Question] = field(default_factory=dict[str, Question])
    left: float = 0.0

    async def answer(self, answers: Mapping[str, Any]) -> None:
        await self._ask(answers=dict(answers))

    async def refuse(self, key: str, error: RequestError) -> None:
        raise error  # only callers of earlier revisions refuse so, and they have no such tasks

    async def cancel(self) -> bool:
        return self.shown["status"] not in ENDED and await self._ask(cancel=True)

    async def change(self) -> None:
        # for those callers, too
        raise RequestError(f"the task is {self.shown['status']}", code=INVALID_PARAMS)

    async def _ask(self, **action: Any) -> bool:
        """Act on the task where it runs; False if it does not any more."""
        if self.shown["status"] in ENDED:
            return False
        try:
            await self.tasks.ask(self.name, self.owner, **action)
        except (ReplicaGone, UnknownToReplica):
            return False
        return True
