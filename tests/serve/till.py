"""A replica and workers over one store in this process, whose every part a test holds. Asserts nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tests.clocks import Clock
from tests.serve.shared_tasks import DECLARED, Doings, Nobody
from toolweave import tool
from toolweave.errors import StoreError
from toolweave.jobs import Handler, Job, JobWorker
from toolweave.serve._changes import Changes
from toolweave.serve._endpoint import Endpoint
from toolweave.serve._request_context import HandlerRunner
from toolweave.serve._subscriptions import Listen
from toolweave.serve._tasks import TasksFeature
from toolweave.serve._tasks.remote import RemoteTasks
from toolweave.serve._tasks.store import TASKS, TaskStore
from toolweave.serve._tasks.worker import TaskJobs
from toolweave.serve._tools import Tools
from toolweave.serve.request import Client, Json, Request
from toolweave.state import Change, Document, MemoryStore, Put
from toolweave.tools import ToolRegistry

__all__ = ["Frail", "Jobs", "Till"]


class Frail(MemoryStore):
    """A store that can be away, or full for large documents."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.clock = clock
        self.away = False
        self.room = 10**9
        self.meanwhile: Callable[[], Awaitable[object]] | None = None  # happens right before a task is written

    async def get(self, collection: str, key: str) -> Document | None:
        """Return a document, unless it is away."""
        self._reach()
        return await super().get(collection, key)

    async def read(self, names: Sequence[tuple[str, str]]) -> Sequence[Document | None]:
        """Return documents, unless it is away."""
        self._reach()
        return await super().read(names)

    async def write(self, changes: Sequence[Change], *, signal: str | None = None) -> Sequence[int] | None:
        """Write documents, unless it is away or one is too large."""
        self._reach()
        if any(isinstance(one, Put) and len(str(one.value)) > self.room for one in changes):
            raise StoreError("no room")
        if self.meanwhile is not None and any(one.collection == TASKS for one in changes):
            meanwhile = self.meanwhile
            self.meanwhile = None
            await meanwhile()
        return await super().write(changes, signal=signal)

    async def delete(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        """Delete a document, unless it is away."""
        self._reach()
        return await super().delete(collection, key, expect=expect)

    def _reach(self) -> None:
        if self.away:
            raise StoreError("redis://secret:secret@nowhere cannot be reached")


class Jobs:
    """A queue from which a test takes jobs itself."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.away = False

    async def submit(self, job: Job) -> bool:
        """Keep a job."""
        if self.away:
            raise StoreError("the queue cannot be reached")
        self.jobs.append(job)
        return True

    async def hasten(self, job: Job) -> None:
        """Keep a job that is not there: none is postponed."""
        if job not in self.jobs:
            await self.submit(job)

    async def waiting(self, topic: str, keys: Sequence[str]) -> Sequence[str]:
        """Return the keys of jobs that nobody has taken."""
        return [job.key for job in self.jobs if job.topic == topic and job.key in keys]

    async def work(
        self,
        handlers: Mapping[str, Handler],
        *,
        concurrency: int = 10,
        grace_seconds: float = 0,
        started: Callable[[], None] | None = None,
    ) -> None:
        """Do nothing: the test does."""


class Till:
    """A replica and a worker over one store, whose clock, queue and lease are a test's."""

    def __init__(
        self, *, lease_seconds: float = 15.0, slots: int = 1000, store: Frail | None = None, **options: Any
    ) -> None:
        self.queue = Jobs()
        self.doings = Doings()
        self.store = Frail(Clock()) if store is None else store
        self.clock = self.store.clock
        runner = HandlerRunner()
        kept = TaskStore(self.store, self.queue, "till", self.clock, slots=slots)
        self.changes = Changes(debounce=0)
        again = tool(annotations={"idempotentHint": True})(self.again)
        tools = [self.doings.work, self.doings.hang, self.doings.ask, self.huge, self.crash, again]
        rules = dict.fromkeys(("work", "hang", "ask", "huge", "crash", "again"), "required")
        self.tasks = TasksFeature(rules, runner=runner, backend=RemoteTasks(kept), clock=self.clock, **options)  # pyright: ignore[reportArgumentType]
        calls = Tools(ToolRegistry(tools), runner=runner, tasks=self.tasks)
        listen = Listen(self.changes, declared=dict[str, Any], filters={"taskIds": self.tasks})
        self.endpoint = Endpoint({"name": "till", "version": "1"}, features=[calls, self.tasks, listen])
        self._kind = partial(TaskJobs, self.tasks.rules, runner=runner, tasks=kept, prepare=calls.prepare)
        self.workers = [self.worker(lease_seconds) for _ in range(2)]

    def worker(self, lease_seconds: float) -> JobWorker[Any]:
        """Return one more worker."""
        return JobWorker(self._kind(lease_seconds=lease_seconds))

    async def huge(self) -> str:
        """Return much."""
        return "x" * 10_000

    async def crash(self) -> str:
        """Fail in a way nobody foresaw."""
        raise ValueError("a secret of the inside")

    async def again(self) -> str:
        """Do what may be done again."""
        return "done again"

    async def ask(
        self, method: str, headers: Mapping[str, str] | None = None, *, who: str | None = None, **params: Any
    ) -> Json:
        """Ask as a stateless client."""
        capabilities: Json = {**DECLARED, "elicitation": {}}
        client = Client(version="2026-07-28", capabilities=capabilities, principal=who)
        request = Request(
            method=method, params=params, client=client, reply_channel=Nobody(), id=1, headers=headers or {}
        )
        return await self.endpoint.answer(request)

    async def ask_in_core(self, method: str, **params: Any) -> Json:
        """Ask as a client of 2025-11-25."""
        client = Client(version="2025-11-25", capabilities={"elicitation": {}})
        return await self.endpoint.answer(
            Request(method=method, params=params, client=client, reply_channel=Nobody(), id=1)
        )

    async def begun(self, tool: str) -> tuple[str, Job]:
        """Call a tool; return the id of its task and the job."""
        name = (await self.ask("tools/call", name=tool))["taskId"]
        return name, self.queue.jobs[-1]
