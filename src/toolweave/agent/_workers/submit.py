"""Submitting runs to workers: record a run, enqueue it, and follow it from another process. Executes no run."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Generator, Sequence
from typing import Any, Literal

import anyio

from toolweave._option_checks import choice_error
from toolweave.agent._idempotency import run_id_of
from toolweave.agent._journal import OnUnknown, RunStart
from toolweave.agent._option_checks import UNKNOWN_POLICIES, unknown_policy_error
from toolweave.agent._output import Output
from toolweave.agent._prompt import Prompt, Sendable, messages_of
from toolweave.agent._questions import GivenAnswer
from toolweave.agent._stored.durable import Durable
from toolweave.agent._stored.records import RunRecord, create, ended_signal, read_record, read_start
from toolweave.agent._stored.session_queue import SessionQueue, queued
from toolweave.agent._stored.status import RunInfo, RunStatuses
from toolweave.agent._stored.store_journal import another_request, is_same_request
from toolweave.agent.approval import WaitingCall
from toolweave.errors import RunError
from toolweave.jobs._backoff import until
from toolweave.jobs._kind import JobTopic

_FIRST_LOOK = 0.05
"""Seconds between polls of a run whose end may not be signalled."""


class SubmittedRun:
    """The handle of a run that workers execute: `record = await run`.

    The run does not depend on its handle.

    Attributes:
        id: Unique; `RunStatuses`, and `toolweave runs show`, know it by this.
    """

    def __init__(self, durable: Durable, run_id: str) -> None:
        self.id = run_id
        self._durable = durable
        self._statuses = RunStatuses(durable.store, clock=durable.clock, queue=durable.queue)

    async def status(self) -> RunInfo:
        """Return the present status of the run.

        Raises:
            RunError: It is no longer in the store.
        """
        return await self._statuses.info(await self._record())

    async def result(self, timeout: float | None = None) -> RunRecord:
        """Return its record once it has ended, for any reason: `record.status`, `.text`, `.output`, `.error`.

        Args:
            timeout: Seconds to wait at most; the run continues after that.

        Raises:
            RunError: It is no longer in the store.
            StoreError: The store cannot be reached.
            TimeoutError: It has not ended by then.
        """
        with anyio.fail_after(timeout):
            return await until(
                self._durable.store, ended_signal(self.id), self._ended, sleep=self._durable.sleep, first=_FIRST_LOOK
            )

    async def cancel(self) -> bool:
        """Cancel it and its descendants, in any process; return False when it has ended."""
        return await self._statuses.cancel(self.id)

    async def waiting(self) -> Sequence[WaitingCall]:
        """Return the calls that wait for a person; see `RunStatuses.waiting`."""
        return await self._statuses.waiting(self.id)

    async def approve(
        self, call_id: str, *, remember: Literal["run", "agent"] | None = None, reason: str | None = None
    ) -> bool:
        """Approve a call that waits; see `RunStatuses.approve`."""
        return await self._statuses.approve(self.id, call_id, remember=remember, reason=reason)

    async def deny(self, call_id: str, *, reason: str | None = None) -> bool:
        """Deny a call that waits; see `RunStatuses.deny`."""
        return await self._statuses.deny(self.id, call_id, reason=reason)

    async def answer(self, call_id: str, answer: GivenAnswer) -> bool:
        """Answer a question that a call waits with; see `RunStatuses.answer`."""
        return await self._statuses.answer(self.id, call_id, answer)

    def __await__(self) -> Generator[Any, None, RunRecord]:
        return self.result().__await__()

    def __repr__(self) -> str:
        return f"<SubmittedRun {self.id} of agent {self._durable.agent!r}>"

    async def _ended(self) -> RunRecord | None:
        record = await self._record()
        if record.done:
            return record
        return None

    async def _record(self) -> RunRecord:
        record = await read_record(self._durable.store, self.id)
        if record is None:
            raise RunError("is not in the store", run_id=self.id, reason="error")
        return record


async def submit_message(
    agent: str,
    durable: Durable | None,
    sent: Sendable,
    *,
    session: str | None,
    key: str | None,
    on_unknown: OnUnknown | None,
    attended: Literal["later", False],
) -> SubmittedRun:
    """Submit a message to a worker of an agent; see `Agent.submit`."""
    if on_unknown not in UNKNOWN_POLICIES:
        raise unknown_policy_error(on_unknown)
    if attended not in ("later", False):
        raise choice_error("attended", attended, ("later", False))
    messages = messages_of(sent)
    if durable is None or durable.jobs is None:
        raise ValueError(f"agent {agent!r} has no workers: Agent(..., backend=Backend(url))")
    output = sent.output_type if isinstance(sent, Prompt) else None
    start = RunStart(
        run_id=uuid.uuid4().hex if key is None else run_id_of(agent, key),
        agent=agent,
        messages=messages,
        sent=len(messages),
        session=session,
        attended=attended,
        output=None if output is None else Output(output).form,
        on_unknown=on_unknown,
        meta=_trace_context(),
    )
    return await submit_run(durable, start)


async def submit_run(durable: Durable, start: RunStart) -> SubmittedRun:
    """Record a run, or find the one of its id, and give it to the workers of its agent.

    Raises:
        RunError: The id belongs to another message, or another session.
        StoreError: The store or the queue cannot be reached.
        ValueError: The agent has no queue.
    """
    jobs = durable.jobs
    if jobs is None:
        raise ValueError(f"agent {start.agent!r} has no workers: give it a backend instead of a store: Backend(url)")
    made = await _made(durable, jobs, start)
    if made is None:
        record = await _known(durable, start)
        if not record.done:
            await SessionQueue(durable, record).join()
            await jobs.submit(record.run_id)
    else:
        # Its note was written together with the record, so a worker finds it even if the queue cannot be reached now.
        await jobs.queue.submit(jobs.job(made.run_id))
    return SubmittedRun(durable, start.run_id)


def _trace_context() -> dict[str, str]:
    """Return the context of the present span, below which the worker's spans belong."""
    if "opentelemetry" not in sys.modules:
        # A tracing program has loaded it.
        return {}
    from toolweave.agent._loop.telemetry import trace_context

    return trace_context()


async def _made(durable: Durable, jobs: JobTopic, start: RunStart) -> RunRecord | None:
    """Record a run with its position in the session's queue and its job; None when there is one already."""
    now = durable.clock()
    ttl = durable.keep_seconds
    also = [jobs.note(start.run_id), *queued(start.agent, start.session, start.run_id, now, ttl=ttl)]
    return await create(durable.store, start, status="pending", now=now, ttl=ttl, also=also)


async def _known(durable: Durable, start: RunStart) -> RunRecord:
    """Return the record of a run that was submitted before, or by another at the same time.

    Raises:
        RunError: It began, or is to begin, with something else.
    """
    record = await read_record(durable.store, start.run_id)
    if record is None:
        raise another_request(start.run_id, "its key")
    recorded = await read_start(durable.store, record)
    if not is_same_request(start.new_messages, start.session, recorded):
        raise another_request(start.run_id, "its key")
    return record
