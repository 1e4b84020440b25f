"""The status of the runs of a store, in whichever process they execute.

Reads records and leases; runs nothing itself.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, cast

from toolweave._option_checks import check_kind
from toolweave.agent._questions import GivenAnswer
from toolweave.agent._stored.deadlines import DueNotice, WaitingNotice, due_notices
from toolweave.agent._stored.deletion import delete_run, delete_session
from toolweave.agent._stored.index_build import ensure_index
from toolweave.agent._stored.records import (
    LEASES,
    RUN_NOTES,
    RUNS,
    RunRecord,
    children_of,
    conversations,
    read_batches,
    read_record,
    record_of,
    unreadable,
    write_record,
)
from toolweave.agent._stored.run_index import OpenRun, count_ended, open_runs, recent_pages, waiting_ids
from toolweave.agent._stored.session_queue import runs_behind_others
from toolweave.agent._stored.waiting import answer_waiting, waiting_calls
from toolweave.agent.approval import Approval, WaitingCall
from toolweave.errors import RunError, StoreError
from toolweave.jobs import QueuedJobs, WorkQueue, ask_to_cancel
from toolweave.jobs._lease import is_held, is_living
from toolweave.jobs._queued import queued_jobs
from toolweave.protocol.client_requests import ElicitationResult
from toolweave.state import Document, Store, iter_documents
from toolweave.state.checks import STORE

_log = logging.getLogger("toolweave.agent")

StoredStatus: TypeAlias = Literal[
    "pending", "running", "waiting", "interrupted", "completed", "stopped", "failed", "cancelled", "unreadable"
]
"""The status of a run in its store.

`"waiting"` is one that waits for a person, `"interrupted"` an unfinished run that no process executes,
`"unreadable"` one whose record is damaged or of another version: `record.error` has the reason.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """A run's record and its present status.

    Attributes:
        record: Its record in the store: prompt, parent, text, usage, times.
    """

    record: RunRecord
    status: StoredStatus

    @property
    def run_id(self) -> str:
        """Its id."""
        return self.record.run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStats:
    """Counts of the runs of a store.

    Attributes:
        by_status: Number of runs by status, of a run that has ended by the one with which it did.
        input_tokens: Input tokens of the runs that have ended.
        output_tokens: Output tokens of the runs that have ended.
    """

    total: int
    by_status: Mapping[StoredStatus, int]
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A conversation in a store.

    Attributes:
        agent: The agent's name.
        session: The session's name.
        messages: The number of messages.
    """

    agent: str
    session: str
    messages: int


_NO_ANSWER = "nobody answered in time"


class RunStatuses:
    """The runs of a store, of all agents and processes that use it.

    Args:
        store: The store of the runs.
        clock: Returns the time in seconds, for records that this object writes.
        queue: The queue whose workers continue answered runs; without one `Agent.resume` does.
    """

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time, queue: WorkQueue | None = None) -> None:
        check_kind("RunStatuses.store", store, STORE)
        self._store = store
        self._clock = clock
        self._queue = queue
        self._is_indexed = False

    def __repr__(self) -> str:
        return f"<RunStatuses in {self._store!r}>"

    async def get(self, run_id: str) -> RunInfo | None:
        """Return a run, or None when the store has none of this id."""
        found = await self._infos([run_id])
        if not found:
            return None
        return found[0]

    async def find(self, beginning: str, limit: int = 10) -> Sequence[RunInfo]:
        """Return the runs whose ids begin with a text, by id.

        Args:
            beginning: How the ids begin.
            limit: Their maximum number.

        Raises:
            StoreError: The store cannot be read.
        """
        found = await self._store.scan(RUNS, prefix=beginning, limit=limit)
        return await self._infos([one.key for one in found])

    async def active(self) -> Sequence[RunInfo]:
        """Return the runs that are active now, the oldest first."""
        held = [lease.key async for lease in iter_documents(self._store, LEASES)]
        return _oldest_first([info for info in await self._infos(held) if info.status == "running"])

    async def recent(
        self, limit: int = 20, *, agent: str | None = None, session: str | None = None
    ) -> Sequence[RunInfo]:
        """Return the runs that were created last, the newest first.

        Args:
            limit: Their maximum number.
            agent: The agent whose runs are returned; by default those of all.
            session: The session whose runs are returned; by default those of all, and those without one.

        Raises:
            StoreError: The store cannot be read.
        """
        recent: dict[str, RunInfo] = {}
        if limit <= 0:
            return []
        await self._ensure_index()
        async for page in recent_pages(self._store, agent, session):
            for first in range(0, len(page), limit):
                for one in await self._infos(page[first : first + limit]):
                    # its creator may die and create it again: then it is listed twice
                    recent.setdefault(one.run_id, one)
                if len(recent) >= limit:
                    return list(recent.values())[:limit]
        return list(recent.values())

    async def interrupted(self, *, agent: str | None = None) -> Sequence[RunInfo]:
        """Return the unfinished runs that no process executes, the oldest first: `agent.resume` continues them.

        A spawned run that has not started is among them when its parent is not executing either.
        """
        await self._ensure_index()
        unfinished = await open_runs(self._store, agent)
        held = await self._held()
        left = [one.run_id for one in unfinished if _is_left(one, held)]
        return _oldest_first([info for info in await self._infos(left) if info.status in ("pending", "interrupted")])

    async def stats(self) -> RunStats:
        """Return the number of runs, by status.

        Raises:
            StoreError: The store cannot be read.
        """
        await self._ensure_index()
        ended = await count_ended(self._store, self._clock())
        counts = Counter(cast("Mapping[StoredStatus, int]", ended.by_status))
        counts["waiting"] = len(await waiting_ids(self._store))
        unfinished = await open_runs(self._store)
        held = await self._held()
        for one in unfinished:
            if one.status == "running" and one.run_id not in held:
                counts["interrupted"] += 1
            else:
                counts[cast("StoredStatus", one.status)] += 1
        input_tokens, output_tokens = ended.tokens
        return RunStats(
            total=counts.total(), by_status=dict(+counts), input_tokens=input_tokens, output_tokens=output_tokens
        )

    async def queued(self) -> Mapping[str, QueuedJobs]:
        """Return the submitted runs that wait for a worker, by agent; an agent without such runs is missing.

        Runs that wait for a person, or behind another run of their session, do not count: no worker could start them.

        Raises:
            StoreError: The store cannot be read.
        """
        return await queued_jobs(self._store, RUN_NOTES, excluded=await runs_behind_others(self._store))

    async def cancel(self, run_id: str) -> bool:
        """Cancel a run and its descendants, in any process; return False if it has ended or does not exist.

        A run of another process ends at the next renewal of its lease, or when another worker takes it over before
        that; one that no process executes is cancelled at once.
        """
        record = await read_record(self._store, run_id)
        cancelled = await self._cancel(record)
        seen = {run_id}
        left = await children_of(self._store, run_id)
        while left:
            child = left.pop()
            # A record may be damaged: a run that is its own ancestor must not make this endless.
            if child.run_id not in seen:
                seen.add(child.run_id)
                await self._cancel(child)
                left += await children_of(self._store, child.run_id)
        return cancelled

    async def sessions(self) -> list[SessionInfo]:
        """Return the conversations of all agents, by agent and session.

        Raises:
            StoreError: The store cannot be read.
        """
        return [
            SessionInfo(agent=agent, session=session, messages=messages)
            async for agent, session, messages in conversations(self._store)
        ]

    async def delete(self, run_id: str) -> int:
        """Delete a run and its descendants for ever; return the number of deleted runs.

        The messages of the run in the conversation of its session stay: see `delete_session`.

        Raises:
            RunError: One of them has not ended: cancel it first.
            StoreError: The store cannot be read or written.
        """
        return await delete_run(self._store, run_id)

    async def delete_session(self, agent: str, session: str) -> int:
        """Delete the conversation of a session and its runs for ever; return the number of deleted runs.

        Raises:
            RunError: One of the runs has not ended: cancel it first.
            StoreError: The store cannot be read or written.
        """
        return await delete_session(self._store, agent, session)

    async def waiting_runs(self, *, agent: str | None = None) -> Sequence[RunInfo]:
        """Return the runs that wait for a person, the oldest first; see `waiting` for their calls."""
        await self._ensure_index()
        found = await self._infos(await waiting_ids(self._store, agent))
        return _oldest_first([info for info in found if info.status == "waiting"])

    async def waiting(self, run_id: str) -> Sequence[WaitingCall]:
        """Return the calls of a run that wait for a person and have no answer yet, the oldest first."""
        return await waiting_calls(self._store, run_id)

    async def approve(
        self,
        run_id: str,
        call_id: str,
        *,
        remember: Literal["run", "agent"] | None = None,
        reason: str | None = None,
    ) -> bool:
        """Approve a call that waits, of a run in any process; return whether the run continues now.

        It continues after the last answer: a worker resumes it, or `Agent.resume` without a queue. The approval
        is for the definition of the tool that was shown: when that has changed, the run asks again. Giving the same
        answer again does nothing, until the call is made.

        Args:
            run_id: The run.
            call_id: The call's id.
            remember: `"run"` or `"agent"` to allow the tool from now on without asking; other calls of it that wait
                are also approved.
            reason: The reason, for the event.

        Raises:
            RunError: The run or the call does not exist or does not wait, the run has ended, or the call was denied
                before.
            StoreError: The store or the queue cannot be reached.
        """
        return await self._answer(run_id, call_id, Approval(approved=True, remember=remember, reason=reason))

    async def deny(self, run_id: str, call_id: str, *, reason: str | None = None) -> bool:
        """Deny a call that waits; the model reads the reason. See `approve`."""
        return await self._answer(run_id, call_id, Approval(approved=False, reason=reason))

    async def answer(self, run_id: str, call_id: str, answer: GivenAnswer) -> bool:
        """Answer a question of a server that a call waits with; return whether the run continues now.

        It continues as after `approve`: the server gets the answer, and the call its result.

        Args:
            run_id: The run.
            call_id: The `call_id` of the question; that of the call will do where it waits with one question.
            answer: An `ElicitationResult`, or the values of the form, which accepts it; defaults are filled in.

        Raises:
            RunError: The run or the question does not exist, the run does not wait, the question has another answer,
                or the values do not fit the form.
            StoreError: The store or the queue cannot be reached.
        """
        return await self._answer(run_id, call_id, answer)

    async def apply_deadlines(self, *, agent: str | None = None) -> Sequence[WaitingNotice]:
        """Remind of the runs that wait for a person, and end the wait of those whose deadline has passed.

        Workers do this about once a minute (`WaitingPolicy`). Where several processes do it, each notice is returned to
        one of them.

        Args:
            agent: The agent whose runs are looked at; by default those of all.

        Returns:
            The notices of this call.

        Raises:
            StoreError: The store or the queue cannot be reached.
        """
        now = self._clock()
        await self._ensure_index()
        notices: list[WaitingNotice] = []
        for due in await due_notices(self._store, agent, now):
            if await due.claim(self._store, now):
                notice = await self._apply(due)
                notices += [] if notice is None else [notice]
        return notices

    async def info(self, record: RunRecord) -> RunInfo:
        """Return the present status of the run of a record."""
        status: StoredStatus = record.status
        # The record of a process that died still says "running". Only a lease shows that a process has the run.
        if status == "running" and not await is_held(self._store, LEASES, record.run_id):
            status = "interrupted"
        return RunInfo(record=record, status=status)

    async def _apply(self, due: DueNotice) -> WaitingNotice | None:
        """Apply a deadline, or return its reminder; None if the run does not wait any more."""
        record = await read_record(self._store, due.run_id)
        if record is None or record.status != "waiting" or record.due_at != due.due_at:
            return None
        calls = await self.waiting(due.run_id)
        kind: Literal["reminder", "denied", "cancelled"] = "reminder"
        if not due.is_reminder and record.when_due == "cancel":
            kind = "cancelled"
            if not await self.cancel(due.run_id):
                return None
        elif not due.is_reminder:
            kind = "denied"
            if not await self._deny_all(due.run_id, calls):
                return None
        return WaitingNotice(
            kind=kind,
            run_id=record.run_id,
            agent=record.agent,
            session=record.session,
            due_at=due.due_at,
            calls=calls,
        )

    async def _deny_all(self, run_id: str, calls: Sequence[WaitingCall]) -> bool:
        """Deny the calls of a run and dismiss its questions; return False if a person was faster."""
        for call in calls:
            answer: Approval | GivenAnswer = Approval(approved=False, reason=_NO_ANSWER)
            if call.question is not None:
                answer = ElicitationResult(action="cancel")
            try:
                await self._answer(run_id, call.call_id, answer)
            except RunError as exc:
                _log.info("run %s has an answer at its deadline: %s", run_id, exc)
                return False
        return True

    async def _infos(self, run_ids: Sequence[str]) -> list[RunInfo]:
        """Return the present status of runs, in this order; those that are gone are left out."""
        names: list[tuple[str, str]] = []
        for run_id in run_ids:
            names += [(RUNS, run_id), (LEASES, run_id)]
        found = await read_batches(self._store, names)
        pairs = zip(found[::2], found[1::2], strict=True)
        return [_info(record, is_held=is_living(lease)) for record, lease in pairs if record is not None]

    async def _held(self) -> set[str]:
        """Return the ids of the runs that a living process executes."""
        return {lease.key async for lease in iter_documents(self._store, LEASES) if is_living(lease)}

    async def _ensure_index(self) -> None:
        """Build the indexes of an old store, once."""
        if not self._is_indexed:
            await ensure_index(self._store, self._clock())
            self._is_indexed = True

    async def _answer(self, run_id: str, call_id: str, answer: Approval | GivenAnswer) -> bool:
        now = self._clock()
        return await answer_waiting(self._store, run_id, call_id, answer, queue=self._queue, now=now)

    async def _cancel(self, record: RunRecord | None) -> bool:
        while record is not None and not record.done:
            # beside the lease, which ends with its holder
            await self._store.put(RUN_NOTES.cancels, record.run_id, True, ttl=record.keep_seconds)
            if await ask_to_cancel(self._store, LEASES, record.run_id):
                return True
            ended = replace(record, status="cancelled", stop_reason="cancelled", changed_at=self._clock())
            if await write_record(self._store, ended) is not None:
                await self._store.delete(RUN_NOTES.cancels, record.run_id)
                return True
            # It began or ended just now.
            record = await read_record(self._store, record.run_id)
        return False


def _info(found: Document, *, is_held: bool) -> RunInfo:
    """Return the present status of a run; an unreadable record is a status, not an error."""
    try:
        record = record_of(found)
    except StoreError as exc:
        return RunInfo(record=unreadable(found, exc), status="unreadable")
    # The record of a process that died still says "running". Only a lease shows that a process has the run.
    if record.status == "running" and not is_held:
        return RunInfo(record=record, status="interrupted")
    return RunInfo(record=record, status=record.status)


def _is_left(one: OpenRun, held: Collection[str]) -> bool:
    """Whether no process executes an unfinished run, nor its parent if it has not started."""
    if one.status == "pending":
        return one.parent_id not in held
    return one.run_id not in held


def _oldest_first(runs: Iterable[RunInfo]) -> Sequence[RunInfo]:
    return sorted(runs, key=lambda run: (run.record.created_at, run.run_id))
