"""Task records in a store that many processes share, changed by compare-and-set.

A permit is a document with a number as its key, created only if there is none (`expect=0`), so that no number is held
twice; it expires with its task, so that a process that dies leaks none.

A task's own document is small and changes: its status, its runner, its client's answers. The call that it came from is
written once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolweave.errors import StoreError
from toolweave.jobs import WorkQueue
from toolweave.jobs._kind import JobCollections, JobTopic
from toolweave.protocol import methods
from toolweave.protocol.tasks import ENDED, TASK_ID, failed, updated
from toolweave.serve._request_context import forwarded_meta
from toolweave.serve._tasks.port import KEPT_AT_LEAST, NewTask, full, too_long
from toolweave.serve.request import Client, Json, ReplyChannel, Request
from toolweave.state import Change, Delete, Document, Put, Store

MAX_OUTSTANDING = 1000
OPEN_TO_ALL = 0.8
"""The share of the permits that is taken blindly; an owner who takes one of the rest has to hold few."""
FEW = 0.1
"""The part of the permits up to which an owner may have some of the rest."""
TRIES = 8
"""Guesses at a free number before all of them are read."""
PERMITS = "task-permits "
"""The collection of a server's permits is this and the server's name; a permit's value is its owner."""
REFUSED_SECONDS = 1.0
"""Seconds for which an owner that was refused is refused again without reading the store."""


@dataclass(frozen=True, slots=True)
class Permit:
    """A permit that is held.

    Attributes:
        key: Its number.
        revision: Of its document, so that a permit that expired and was acquired by another is not released.
    """

    key: str
    revision: int


class StoreSemaphore:
    """The permits of one server.

    Args:
        server: The server's name.
        clock: Returns the time in seconds.
        slots: The number of slots.
    """

    def __init__(self, store: Store, server: str, clock: Callable[[], float], *, slots: int = MAX_OUTSTANDING) -> None:
        self._store = store
        self._collection = PERMITS + server
        self._clock = clock
        self._slots = slots
        self._open = max(1, int(slots * OPEN_TO_ALL))
        # until when, by owner; None for all of them
        self._refused: dict[str | None, float] = {}

    async def acquire(self, owner: str | None, ttl: float) -> Permit | None:
        """Take a permit for so many seconds at most; return None if this owner has no free permit.

        Raises:
            StoreError: The store cannot be reached.
        """
        # A full server is asked again and again by the same callers. For a second the answer is taken from memory, so
        # a flood costs this process nothing but a dictionary, and the store nothing at all.
        now = self._clock()
        self._refused = {who: until for who, until in self._refused.items() if until > now}
        if None in self._refused or owner in self._refused:
            return None
        # A guess hits a free number almost always while most are free: one write, whatever the number of slots. All of
        # them are read only when several guesses failed. Two processes that guess one number are told apart by the
        # store, where only the first can create the document.
        for _ in range(TRIES):
            permit = await self._take(random.randrange(self._open), owner, ttl)  # noqa: S311 - spreads, guards nothing
            if permit is not None:
                return permit
        return await self._look(owner, ttl)

    async def release(self, permit: Permit) -> None:
        """Give a permit back, unless its time was over.

        Raises:
            StoreError: The store cannot be reached; the permit is free when its time is over.
        """
        await self._store.delete(self._collection, permit.key, expect=permit.revision)

    async def _look(self, owner: str | None, ttl: float) -> Permit | None:
        """Scan for a free permit; the reserve is for owners below their share."""
        taken: Sequence[Document] = await self._store.scan(self._collection, limit=self._slots)
        free = sorted(set(range(self._slots)) - {int(one.key) for one in taken})
        if not free:
            self._refused[None] = self._clock() + REFUSED_SECONDS
            return None
        # The last part of the permits is for owners that have few: an owner that fills the rest cannot keep others out.
        open_to_all = [number for number in free if number < self._open]
        has_few = owner is None or sum(one.value == owner for one in taken) < self._slots * FEW
        if not open_to_all and not has_few:
            self._refused[owner] = self._clock() + REFUSED_SECONDS
            return None
        free = open_to_all or free
        for number in random.sample(free, min(TRIES, len(free))):
            permit = await self._take(number, owner, ttl)
            if permit is not None:
                return permit
        # as many others took them meanwhile
        return None

    async def _take(self, number: int, owner: str | None, ttl: float) -> Permit | None:
        key = f"{number:06}"
        revision = await self._store.put(self._collection, key, owner, ttl=ttl, expect=0)
        if revision is None:
            return None
        return Permit(key, revision)


TOOLS_CALL = methods.TOOLS_CALL
TASKS = "tasks"
CALLS = "task-calls"
TASK_NOTES = JobCollections("task", "server")
FORM = 1
"""The format version of the records; those of another version are ignored."""
_NOTED_SECONDS = 86_400.0
"""Seconds for which it is kept how many workers died of a task."""


@dataclass(slots=True, kw_only=True)
class StoredTask:
    """The record of one task in the store.

    Attributes:
        owner: The principal whose task it is.
        server: The name of its server; tasks of other servers are ignored.
        task: As clients see it.
        expires_at: Its deadline, in seconds since the epoch.
        runner: The holder of the lease that runs it, or died; None before it began, and after it was handed back.
        answers: The client's answers, by the key of the question.
        refused: The questions that it refused to answer, with the error's message and data.
        permit: The one that it holds of those that may be outstanding.
        revision: Of the document; 0 before it is there.
    """

    owner: str | None
    server: str
    task: Json
    expires_at: float
    runner: str | None = None
    answers: Json = field(default_factory=dict[str, Any])
    refused: Json = field(default_factory=dict[str, Any])
    permit: tuple[str, int] | None = None
    revision: int = 0

    @property
    def name(self) -> str:
        """The task's id."""
        return self.task[TASK_ID]

    @property
    def ended(self) -> bool:
        """Whether its status is final."""
        return self.task["status"] in ENDED


class TaskStore:
    """The tasks of one server in a store.

    Args:
        queue: Notifies workers of them.
        server: The server's name.
        clock: Returns the time in seconds since the epoch.
        slots: Maximum outstanding tasks of all that share the store.

    Attributes:
        topic: The topic under which workers are notified of them.
    """

    def __init__(
        self, store: Store, queue: WorkQueue, server: str, clock: Callable[[], float], *, slots: int = MAX_OUTSTANDING
    ) -> None:
        self.store = store
        self.server = server
        self.clock = clock
        self.topic = JobTopic(TASK_NOTES, server, store=store, queue=queue, clock=clock, keep_seconds=_NOTED_SECONDS)
        self._permits = StoreSemaphore(store, server, clock, slots=slots)

    def entry(self, new: NewTask) -> StoredTask:
        """Return the record of a new task."""
        owner = new.request.client.principal
        return StoredTask(owner=owner, server=self.server, task=new.shown, expires_at=new.expires_at)

    async def add(self, entry: StoredTask, new: NewTask) -> None:
        """Store a new task, and the call that it comes from; after a failure `remove` deletes both.

        Raises:
            RequestError: Too many tasks are outstanding.
            StoreError: The store cannot be reached, or is full.
        """
        ttl = self._ttl(entry)
        permit = await self._permits.acquire(entry.owner, ttl)
        if permit is None:
            raise full()
        entry.permit = (permit.key, permit.revision)
        request = new.request
        client = request.client
        call: Json = {
            "name": request.text("name"),
            "arguments": request.params.get("arguments") or {},
            "meta": dict(forwarded_meta(request)),
            "given": dict(new.given),
            "version": client.version,
            "capabilities": dict(client.capabilities),
            "info": None if client.info is None else dict(client.info),
            "principal": client.principal,
            "conversation": client.conversation,
            "strangers": bool(request.headers),
        }
        kept = Put(collection=CALLS, key=entry.name, value=call, ttl=ttl)
        # One write: a task without its call could not be run, and without its note no worker would look for it after
        # the queue has lost its job.
        revisions = await self.store.write([self._put(entry), kept, self.topic.note(entry.name, ttl=ttl)])
        if revisions is None:
            raise StoreError(f"there is a task {entry.name!r} already", collection=TASKS)
        entry.revision = revisions[0]

    async def remove(self, entry: StoredTask) -> None:
        """Delete a task that was never announced to its client.

        Raises:
            StoreError: The store cannot be reached.
        """
        await self.store.delete(TASKS, entry.name)
        await self.tidy(entry)

    async def tidy(self, entry: StoredTask) -> None:
        """Delete the unneeded parts of a task that no worker will see again: its call, its notes, and its permit.

        Raises:
            StoreError: The store cannot be reached.
        """
        call = Delete(collection=CALLS, key=entry.name)
        await self.store.write([call, *self.topic.forgotten(entry.name)])
        if entry.permit is not None:
            await self._permits.release(Permit(*entry.permit))

    async def call(self, name: str, reply_channel: ReplyChannel) -> tuple[Request, Json] | None:
        """Return the call that a task comes from, and the answers that came with it; None when it has expired."""
        found = await self.store.get(CALLS, name)
        if found is None:
            return None
        call: Json = found.value
        client = Client(
            version=call["version"],
            capabilities=call["capabilities"],
            info=call["info"],
            principal=call["principal"],
            conversation=call["conversation"],
        )
        params = {"name": call["name"], "arguments": call["arguments"], "_meta": call["meta"]}
        if call["strangers"]:
            headers = {"mcp-method": TOOLS_CALL}
        else:
            headers = {}
        request = Request(
            method=TOOLS_CALL, params=params, client=client, reply_channel=reply_channel, id=name, headers=headers
        )
        return request, {"given": call["given"], "meta": call["meta"]}

    async def read(self, name: str) -> StoredTask | None:
        """Return the current record of a task; one past its deadline has failed.

        Raises:
            StoreError: The store cannot be reached.
        """
        # A deadline is enforced by the process that reads: its worker may be dead. If the write fails, the task has
        # changed meanwhile, perhaps to its real end, which then counts.
        while True:
            found = await self.store.get(TASKS, name)
            entry = None if found is None else self.loaded(found)
            if entry is None:
                return None
            if entry.ended or self.clock() <= entry.expires_at:
                return entry
            entry.task = failed(entry.task, self.clock(), too_long())
            if await self.write(entry):
                return entry

    def loaded(self, found: Document) -> StoredTask | None:
        """Return the task that a document is; None when it is another server's, or of another version."""
        if (found.value.get("form"), found.value.get("server")) != (FORM, self.server):
            return None
        return StoredTask(**{name: found.value[name] for name in _WRITTEN}, revision=found.revision)

    async def write(self, entry: StoredTask) -> bool:
        """Store a task unless its record changed meanwhile; return whether it was stored.

        When it has ended, its call and its client's answers are deleted: they may be secret.
        """
        changes: list[Change] = [self._put(entry)]
        if entry.ended:
            changes.append(Delete(collection=CALLS, key=entry.name))
        revisions = await self.store.write(changes, signal=changed_signal(entry.name))
        if revisions is None:
            return False
        entry.revision = revisions[0]
        return True

    async def change(self, name: str, change: Callable[[StoredTask], bool]) -> StoredTask | None:
        """Change the current record of a task; `change` returns whether to store it. None when the task is gone."""
        # Compare and set: `change` is applied to the newest record, and again if another process was faster. Each
        # turn means that another write succeeded.
        while True:
            entry = await self.read(name)
            if entry is None or not change(entry) or await self.write(entry):
                return entry

    async def cancel(self, name: str, message: str) -> tuple[StoredTask | None, bool]:
        """Cancel a task; return it as it is now, and whether it had not ended before."""
        cancelled = False

        def end(entry: StoredTask) -> bool:
            nonlocal cancelled
            cancelled = not entry.ended
            if cancelled:
                entry.task = updated(entry.task, self.clock(), status="cancelled", statusMessage=message)
            return cancelled

        return await self.change(name, end), cancelled

    def _put(self, entry: StoredTask) -> Put:
        if entry.ended:
            entry.answers = {}
            entry.refused = {}
        value = {"form": FORM, **{name: getattr(entry, name) for name in _WRITTEN}}
        return Put(collection=TASKS, key=entry.name, value=value, ttl=self._ttl(entry), expect=entry.revision)

    def _ttl(self, entry: StoredTask) -> float:
        left = max(0.0, entry.expires_at - self.clock())
        if entry.ended:
            return max(left, KEPT_AT_LEAST)
        return left + KEPT_AT_LEAST


def changed_signal(name: str) -> str:
    """Return the signal that a task was written to."""
    return f"{TASKS}/{name}"


_WRITTEN = ("owner", "server", "task", "expires_at", "runner", "answers", "refused", "permit")
