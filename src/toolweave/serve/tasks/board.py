"""Tasks in a store that many processes share: their documents, and how these change without one losing another's word.

A task's own document is small and changes: how it is, who runs it, what its client answered. The call that it came
from is written once. Knows no request that waits and no tool that runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from toolweave.errors import StoreError
from toolweave.protocol import methods
from toolweave.protocol.tasks import ENDED, TASK_ID, failed
from toolweave.serve.request import Client, Json, Line, Request
from toolweave.serve.rounds import kept_meta
from toolweave.serve.tasks.home import KEPT_AT_LEAST, NewTask, full, too_long
from toolweave.serve.tasks.places import MOST, Place, Places
from toolweave.state import Store
from toolweave.work.queue import Job

__all__ = ["LEASES", "Board", "Entry"]

_log = logging.getLogger("toolweave.serve")

TOOLS_CALL = methods.TOOLS_CALL
TASKS = "tasks"
CALLS = "task-calls"
LEASES = "task-leases"
FORM = 1
"""How entries are written; those of another form are none of ours."""


@dataclass(slots=True, kw_only=True)
class Entry:
    """One task as it stands in the store.

    Attributes:
        owner: The principal whose task it is.
        server: The name of its server; those of others are none of ours.
        task: As clients see it.
        expires_at: When it has to be over, in seconds since the epoch.
        runner: The holder of the lease that runs it, or died; None before it began, and after it was handed back.
        deaths: How many workers died while they ran it.
        answers: What the client answered, by the key of the question.
        refused: What it refused to answer, with the error's message and data.
        place: The number of its place among those that may be outstanding, and who took that.
        revision: Of the document; 0 before it is there.
    """

    owner: str | None
    server: str
    task: Json
    expires_at: float
    runner: str | None = None
    deaths: int = 0
    answers: Json = field(default_factory=dict[str, Any])
    refused: Json = field(default_factory=dict[str, Any])
    place: tuple[str, int] | None = None
    revision: int = 0

    @property
    def name(self) -> str:
        """The task's id."""
        return self.task[TASK_ID]

    @property
    def ended(self) -> bool:
        """Whether its status is final."""
        return self.task["status"] in ENDED


class Board:
    """The tasks of one server in a store.

    Args:
        server: The server's name.
        clock: Tells the time in seconds since the epoch.
        most: How many tasks may be outstanding, for all that share the store.
    """

    def __init__(self, store: Store, server: str, clock: Callable[[], float], *, most: int = MOST) -> None:
        self.store = store
        self.server = server
        self.clock = clock
        self._places = Places(store, server, clock, most=most)

    @property
    def topic(self) -> str:
        """What its jobs are called."""
        return f"tasks:{self.server}"

    def job(self, name: str) -> Job:
        """Return what a worker is given to do a task."""
        return Job(topic=self.topic, key=name)

    def entry(self, new: NewTask) -> Entry:
        """Return what a new task is to be in the store."""
        owner = new.request.client.principal
        return Entry(owner=owner, server=self.server, task=new.shown, expires_at=new.expires_at)

    async def add(self, entry: Entry, new: NewTask) -> None:
        """Write a new task, and the call that it comes from; `remove` takes away what came of it when this fails.

        Raises:
            RequestError: As many are outstanding as may be.
            StoreError: The store cannot be reached, or is full.
        """
        place = await self._places.take(entry.owner, self._ttl(entry))
        if place is None:
            raise full()
        entry.place = (place.key, place.revision)
        request = new.request
        client = request.client
        call: Json = {
            "name": request.text("name"),
            "arguments": request.params.get("arguments") or {},
            "meta": dict(kept_meta(request)),
            "given": dict(new.given),
            "version": client.version,
            "capabilities": dict(client.capabilities),
            "info": None if client.info is None else dict(client.info),
            "principal": client.principal,
            "conversation": client.conversation,
            "strangers": bool(request.headers),
        }
        await self.store.put(CALLS, entry.name, call, ttl=self._ttl(entry))
        await self.write(entry)

    async def remove(self, entry: Entry) -> None:
        """Forget a task that its client was never told of.

        Raises:
            StoreError: The store cannot be reached.
        """
        await self.store.delete(TASKS, entry.name)
        await self.tidy(entry)

    async def tidy(self, entry: Entry) -> None:
        """Forget what nobody needs of a task that no worker will see again: its call, and its place.

        Raises:
            StoreError: The store cannot be reached.
        """
        await self.store.delete(CALLS, entry.name)
        if entry.place is not None:
            await self._places.give_back(Place(*entry.place))

    async def call(self, name: str, line: Line) -> tuple[Request, Json] | None:
        """Return the call that a task comes from, and the answers that came with it; None when it is forgotten."""
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
        params = {"name": call["name"], "arguments": call["arguments"]}
        headers = {"mcp-method": TOOLS_CALL} if call["strangers"] else {}
        request = Request(method=TOOLS_CALL, params=params, client=client, line=line, id=name, headers=headers)
        return request, {"given": call["given"], "meta": call["meta"]}

    async def read(self, name: str) -> Entry | None:
        """Return a task as it is now; one that is not over when it had to be has failed.

        Raises:
            StoreError: The store cannot be reached.
        """
        while True:
            found = await self.store.get(TASKS, name)
            if found is None or (found.value.get("form"), found.value.get("server")) != (FORM, self.server):
                return None
            entry = Entry(**{name: found.value[name] for name in _WRITTEN}, revision=found.revision)
            if entry.ended or self.clock() <= entry.expires_at:
                return entry
            entry.task = failed(entry.task, self.clock(), too_long())
            if await self.write(entry):
                return entry

    async def write(self, entry: Entry) -> bool:
        """Write a task unless another wrote it meanwhile; return whether it was written.

        With its end, what its client answered is forgotten, and its call, which may all be secret.
        """
        if entry.ended:
            entry.answers, entry.refused = {}, {}
        value = {"form": FORM, **{name: getattr(entry, name) for name in _WRITTEN}}
        revision = await self.store.put(TASKS, entry.name, value, ttl=self._ttl(entry), expect=entry.revision)
        if revision is None:
            return False
        entry.revision = revision
        if entry.ended:
            try:
                await self.store.delete(CALLS, entry.name)
            except StoreError as exc:
                _log.debug("the call of a task that has ended stays until its job is done: %s", exc)
        return True

    async def change(self, name: str, change: Callable[[Entry], bool]) -> Entry | None:
        """Change a task as it is now; `change` returns whether there is anything to write. None when it is gone."""
        while True:
            entry = await self.read(name)
            if entry is None or not change(entry) or await self.write(entry):
                return entry

    def _ttl(self, entry: Entry) -> float:
        left = max(0.0, entry.expires_at - self.clock())
        return max(left, KEPT_AT_LEAST) if entry.ended else left + KEPT_AT_LEAST


_WRITTEN = ("owner", "server", "task", "expires_at", "runner", "deaths", "answers", "refused", "place")
