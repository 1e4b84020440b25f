"""Runs that are handed to workers: recorded, put into a queue, and watched from afar.

What waits in the queue is noted in the store too, so that a queue which lost its jobs is given them again. Does no run
itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import anyio

from toolweave.agent.durable import WORKER_LEASE_SECONDS, Durable, OnUnknown, same_request
from toolweave.agent.journal import RunStart
from toolweave.agent.keys import run_id_of
from toolweave.agent.line import Line, place_in_line
from toolweave.agent.output import Output
from toolweave.agent.prompt import Prompt, Sendable, messages_of
from toolweave.agent.records import RunRecord, conversation_key, create, ended_signal, read_record, read_start
from toolweave.agent.status import CANCELS, RunInfo, RunStatuses
from toolweave.errors import RunError
from toolweave.state import Change, Delete, Put, Store, listening
from toolweave.work import Job, WorkBackend
from toolweave.work.pause import Pause

__all__ = ["DEATHS", "SUBMITTED", "Submits", "SubmittedRun", "durable_in", "enqueue", "submitted_key", "topic_of"]

DEATHS = "run-deaths"
"""The collection with the number of workers that died while they executed a run, by the run's id."""
SUBMITTED = "run-submitted"
"""Runs that workers are to do and that have not ended, below the agent's name."""
_FIRST_LOOK = 0.05
"""Seconds until a run is looked at again; growing where it may take longer."""
_TOLD_LOOK = 5.0
"""The same where its end is told."""


def durable_in(
    name: str, store: Store | None, backend: WorkBackend | None, on_unknown: OnUnknown = "error"
) -> Durable | None:
    """Return what an agent of this name keeps in a store or a backend; None without one.

    Raises:
        ValueError: There are both.
    """
    if backend is None:
        return None if store is None else Durable(store, agent=name, on_unknown=on_unknown)
    if store is not None:
        raise ValueError(f"agent {name!r}: a backend has a store; give it to that: Backend(url, store=...)")
    durable = Durable(
        backend.store, agent=name, queue=backend.queue, on_unknown=on_unknown, lease_seconds=WORKER_LEASE_SECONDS
    )
    durable.cleared = lambda run_id: cleared(name, run_id)
    return durable


def cleared(agent: str, run_id: str) -> Sequence[Change]:
    """Return what forgets, with the end of a run, that workers were to do it."""
    return [
        Delete(collection=SUBMITTED, key=submitted_key(agent, run_id)),
        *(Delete(collection=collection, key=run_id) for collection in (DEATHS, CANCELS)),
    ]


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
            async with listening(self._durable.store, ended_signal(self.id)) as ear:
                while not (record := await self._record()).done:
                    seconds = _TOLD_LOOK if ear.sure else pause.next()
                    await ear.wait(seconds, self._durable.sleep)
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

    async def submit(
        self,
        sent: Sendable,
        /,
        *,
        session: str | None = None,
        key: str | None = None,
        on_unknown: OnUnknown | None = None,
    ) -> SubmittedRun:
        """Have a message answered by a worker, on this machine or another, and return what follows that run.

        Nobody is there to allow calls: what needs to be allowed is denied.

        Args:
            sent: As with `send`.
            session: The conversation that it goes on with, as it is when the run begins. Runs that are submitted to
                it take turns, in the order in which they were submitted.
            key: An idempotency key: submitted with the same one again, it is the same run.
            on_unknown: What is done, when its worker dies, about calls whose outcome nobody knows: `"error"` tells the
                model so, `"rerun"` makes them again, `"ask"` refuses them, as nobody is there; by default what the
                worker, or its agent, was made with.

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
            on_unknown=on_unknown,
        )
        made = await _made(durable, start)
        if made is None:
            record = await _known(durable, start)
            if not record.done:
                await Line(durable, record).join()
                await enqueue(durable, record.run_id)
        else:
            await durable.queue.submit(Job(topic=topic_of(durable.agent), key=made.run_id))
        return SubmittedRun(durable, start.run_id)


async def _made(durable: Durable, start: RunStart) -> RunRecord | None:
    """Record a run, with its place in the line and the note that it is submitted; None when there is one already."""
    now, ttl = durable.clock(), durable.keep_seconds
    key = submitted_key(durable.agent, start.run_id)
    also = [
        Put(collection=SUBMITTED, key=key, value={"at": now, "about": {}}, ttl=ttl),
        *place_in_line(start.agent, start.session, start.run_id, now, ttl=ttl),
    ]
    return await create(durable.store, start, status="pending", now=now, ttl=ttl, also=also)


async def _known(durable: Durable, start: RunStart) -> RunRecord:
    """Return the record of a run that was submitted before, or by another at the same time.

    Raises:
        RunError: It began, or is to begin, with something else.
    """
    record = await read_record(durable.store, start.run_id)
    if record is None or not same_request(start, await read_start(durable.store, record)):
        raise RunError("began with something else; its key is taken", run_id=start.run_id, reason="error")
    return record
