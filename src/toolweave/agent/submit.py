"""Runs that are handed to workers: recorded, put into a queue, and watched from afar.

What waits in the queue is noted in the store too, so that a queue which lost its jobs is given them again. Does no run
itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Mapping
from typing import Any

import anyio

from toolweave.agent.durable import Durable, same_request
from toolweave.agent.journal import RunStart
from toolweave.agent.keys import run_id_of
from toolweave.agent.line import Line
from toolweave.agent.output import Output
from toolweave.agent.prompt import Prompt, Sendable, messages_of
from toolweave.agent.records import RunRecord, conversation_key, create, read_record, read_start
from toolweave.agent.status import RunInfo, RunStatuses
from toolweave.errors import RunError
from toolweave.state import Store
from toolweave.work import Job, WorkBackend
from toolweave.work.pause import Pause

__all__ = ["SUBMITTED", "Submits", "SubmittedRun", "durable_in", "enqueue", "submitted_key", "topic_of"]

SUBMITTED = "run-submitted"
"""Runs that workers are to do and that have not ended, below the agent's name."""
_FIRST_LOOK = 0.05
"""Seconds until a run is looked at again; growing where it may take longer."""
_PATIENCE_SECONDS = 2.0
"""How long somebody else who submits the same run is given to record it."""


def durable_in(name: str, store: Store | None, backend: WorkBackend | None) -> Durable | None:
    """Return what an agent of this name keeps in a store or a backend; None without one.

    Raises:
        ValueError: There are both.
    """
    if backend is None:
        return None if store is None else Durable(store, agent=name)
    if store is not None:
        raise ValueError(f"agent {name!r}: a backend has a store; give it to that: Backend(url, store=...)")
    return Durable(backend.store, agent=name, queue=backend.queue)


def topic_of(agent: str) -> str:
    """Return the topic of the runs of an agent."""
    return f"runs:{agent}"


def submitted_key(agent: str, run_id: str) -> str:
    """Return the key of a run in `SUBMITTED`."""
    return conversation_key(agent, run_id)


async def enqueue(durable: Durable, run_id: str, about: Mapping[str, Any] | None = None) -> None:
    """Have a recorded run done by a worker; harmless when it waits already.

    Raises:
        StoreError: The store or the queue cannot be reached.
        ValueError: There is no queue.
    """
    if durable.queue is None:
        raise ValueError(f"agent {durable.agent!r} has no queue of work; give it one: Agent(..., backend=Backend(url))")
    about = dict(about or {})
    noted = {"at": durable.clock(), "about": about}
    await durable.store.put(SUBMITTED, submitted_key(durable.agent, run_id), noted, ttl=durable.keep_seconds)
    await durable.queue.submit(Job(topic=topic_of(durable.agent), key=run_id, about=about))


class SubmittedRun:
    """A run that workers do, as whoever submitted it holds it: `record = await run`.

    It goes on whether anybody holds it or not.

    Attributes:
        id: Unique; `RunStatuses`, and `toolweave runs show`, know it by this.
    """

    def __init__(self, durable: Durable, run_id: str) -> None:
        self.id = run_id
        self._durable = durable
        self._statuses = RunStatuses(durable.store, clock=durable.clock)

    async def status(self) -> RunInfo:
        """Return where it is now.

        Raises:
            RunError: It is no longer in the store.
        """
        return await self._statuses.info(await self._record())

    async def result(self, timeout: float | None = None) -> RunRecord:
        """Return its record once it has ended, however that was: `record.status`, `.text`, `.output`, `.error`.

        Args:
            timeout: Seconds to wait at most; the run goes on after that.

        Raises:
            RunError: It is no longer in the store.
            StoreError: The store cannot be reached.
            TimeoutError: It has not ended by then.
        """
        pause = Pause(self._durable.sleep, first=_FIRST_LOOK)
        with anyio.fail_after(timeout):
            while not (record := await self._record()).done:
                await pause.wait()
        return record

    async def cancel(self) -> bool:
        """Cancel it and all below it, wherever they run; return False when it has ended."""
        return await self._statuses.cancel(self.id)

    def __await__(self) -> Generator[Any, None, RunRecord]:
        return self.result().__await__()

    def __repr__(self) -> str:
        return f"<SubmittedRun {self.id} of agent {self._durable.agent!r}>"

    async def _record(self) -> RunRecord:
        record = await read_record(self._durable.store, self.id)
        if record is None:
            raise RunError("is not in the store", run_id=self.id, reason="error")
        return record


class Submits:
    """What of an agent hands its runs to workers."""

    name: str
    durable: Durable | None

    async def submit(self, sent: Sendable, /, *, session: str | None = None, key: str | None = None) -> SubmittedRun:
        """Have a message answered by a worker, on this machine or another, and return what follows that run.

        Nobody is there to allow calls: what needs to be allowed is denied.

        Args:
            sent: As with `send`.
            session: The conversation that it goes on with, as it is when the run begins. Runs that are submitted to
                it take turns, in the order in which they were submitted.
            key: An idempotency key: submitted with the same one again, it is the same run.

        Raises:
            RunError: The key stands for another message, or another session.
            StoreError: The store or the queue cannot be reached. With a key it is safe to try again.
            TypeError: It is nothing that can be sent.
            ValueError: The agent has no backend, a prompt lacks a variable, or there is nothing to answer.
        """
        durable, messages = self.durable, messages_of(sent)
        if durable is None or durable.queue is None:
            raise ValueError(f"agent {self.name!r} has no workers: Agent(..., backend=Backend(url))")
        output = sent.output_type if isinstance(sent, Prompt) else None
        start = RunStart(
            run_id=uuid.uuid4().hex if key is None else run_id_of(self.name, key),
            agent=self.name,
            messages=messages,
            sent=len(messages),
            session=session,
            attended=False,
            output=None if output is None else Output(output).form,
        )
        record = await _recorded(durable, start)
        if not record.done:
            await Line(durable, record).join()
            await enqueue(durable, record.run_id)
        return SubmittedRun(durable, start.run_id)


async def _recorded(durable: Durable, start: RunStart) -> RunRecord:
    """Return the record of a run, made once however many submit it at the same time.

    Raises:
        RunError: It began, or is to begin, with something else.
    """
    store, run_id = durable.store, start.run_id
    record = await read_record(store, run_id)
    if record is None:
        noted: dict[str, Any] = {"at": durable.clock(), "about": {}}
        key, ttl = submitted_key(durable.agent, run_id), durable.keep_seconds
        if await store.put(SUBMITTED, key, noted, ttl=ttl, expect=0) is None:
            record = await _made_elsewhere(durable, run_id)
        if record is None:
            made = await create(store, start, status="pending", now=durable.clock(), ttl=ttl)
            if made is not None:
                return made
            record = await read_record(store, run_id)
    if record is None or not same_request(start, await read_start(store, record)):
        raise RunError("began with something else; its key is taken", run_id=run_id, reason="error")
    return record


async def _made_elsewhere(durable: Durable, run_id: str) -> RunRecord | None:
    """Wait for what another is about to record; None if it does not, such as when it died."""
    record, waited = None, 0.0
    while record is None and waited < _PATIENCE_SECONDS:
        await durable.sleep(_FIRST_LOOK)
        waited += _FIRST_LOOK
        record = await read_record(durable.store, run_id)
    return record
