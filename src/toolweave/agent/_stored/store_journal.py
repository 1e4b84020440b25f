"""The journal of a run in a store: turns and calls are recorded as the loop reports them, and replayed.

Knows no model and runs no tool. A run is opened, then recorded, then ends or waits:

- `held` opens it. Of a run that is in the store, the lease and the record that says that it is running are one write,
  so no run is marked as running that no process holds. A new run has a lease only, until `started` has its whole start.
- Entries are written after each turn and around each call. The last turn is written together with the end of the run.
- The end, or the calls that it waits for, is one write with the release of the lease.

A process may die between any two of these writes: what follows continues after the last of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

from toolweave._json_types import Json, JsonObject
from toolweave.agent._events import RunResult
from toolweave.agent._journal import ASK, Ask, Journal, OnUnknown, Recorded, RunStart, outcome_unknown
from toolweave.agent._option_checks import UNKNOWN_POLICIES, unknown_policy_error
from toolweave.agent._questions import NOTHING_ASKED, Asked
from toolweave.agent._stored.durable import Durable
from toolweave.agent._stored.journal_writes import JournalWrites, RetryPolicy, taken_over
from toolweave.agent._stored.records import (
    JOURNAL,
    LEASES,
    RUNS,
    STARTS,
    RunRecord,
    create,
    record_changes,
    record_of,
    start_from_document,
)
from toolweave.agent._stored.run_index import ended_deletions
from toolweave.agent._stored.waiting import answer_key, answer_of, asked_in, question_keys, waiting_changes
from toolweave.agent._workers.handover import current_handover, set_handover
from toolweave.agent.approval import Approval, WaitingCall, definition_digest
from toolweave.errors import RunError
from toolweave.jobs import Lease
from toolweave.models import Finished, Message, ToolCallPart, UserMessage
from toolweave.models._serialization import (
    result_from_json,
    result_to_json,
    turn_from_json,
    turn_to_json,
    usage_from_json,
    usage_to_json,
)
from toolweave.state import Change, iter_documents
from toolweave.tools import RESUMABLE, ToolSpec

_RESULT = "result"
"""The member of a call's entry that holds its result, once it has ended."""
_YOUNG = 0.1
"""The fraction of the time that a run is kept in which its first documents need not be written again."""
_WAITS_FOR_INPUT = "asked"
"""The member of a call's entry that marks a call which waits for input that its server has requested."""


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """A run of the store that this process has opened.

    Attributes:
        record: Its record, which is marked as running.
        start: Its recorded start.
        is_first: Whether no process has opened it before, so that its journal is empty.
    """

    record: RunRecord
    start: RunStart
    is_first: bool


class StoreJournal(Journal):
    """The journal of one run in a store; see `Journal` for the order of calls.

    An entry is written once: of two processes that both execute the run, one fails.

    Args:
        durable: The persistence of its agent.
        run_id: The run, new or not.
        on_unknown: Policy for calls with an unknown outcome, if not the run's or its agent's own.
    """

    def __init__(self, durable: Durable, run_id: str, *, on_unknown: OnUnknown | None = None) -> None:
        self._durable = durable
        self._store = durable.store
        self._run_id = run_id
        self._lease = Lease(durable.store, LEASES, run_id, seconds=durable.lease_seconds, sleep=durable.sleep)
        if on_unknown not in UNKNOWN_POLICIES:
            raise unknown_policy_error(on_unknown)
        self._given_policy: OnUnknown | None = on_unknown
        self._on_unknown: OnUnknown = on_unknown or durable.on_unknown
        self._opened: OpenedRun | None = None
        # While the run is being executed.
        self._record: RunRecord | None = None
        self._writes = JournalWrites(
            durable.store,
            run_id,
            self._lease,
            ttl=durable.keep_seconds,
            retry=RetryPolicy(seconds=durable.lease_seconds, until_lease_is_lost=durable.queue is not None),
        )
        self._entries = self._writes.entries
        self._handover = current_handover()

    def held(
        self, cancel: Callable[[], None], *, sent: Sequence[Message] = (), session: str | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Open the run and hold its lease, which a task renews.

        Raises:
            RunError: Another process has the run, it is not complete in the store any more, or its recorded request
                differs from this one.
        """
        return self._held(cancel, sent, session)

    async def started(self, start: RunStart) -> RunStart:
        """Record a new run, or return the recorded start of an opened one.

        Raises:
            RunError: Another process started it at the same time.
        """
        opened = self._opened
        if opened is None:
            now = self._durable.clock()
            created = await create(self._store, start, status="running", now=now, ttl=self._durable.keep_seconds)
            if created is None:
                raise taken_over(self._run_id)
            self._record = created
            return start
        self._record = opened.record
        self._on_unknown = self._given_policy or opened.start.on_unknown or self._durable.on_unknown
        if opened.is_first:
            return opened.start
        async for found in iter_documents(self._store, JOURNAL, f"{self._run_id}/"):
            self._entries[found.key] = found
        # Up to the first gap: turns are recorded in their order, so nothing behind a gap was answered from it.
        turns = next(step for step in count() if self._turn_key(step + 1) not in self._entries)
        allowed = [found.value for key, found in self._entries.items() if key == self._allowed_key(found.value)]
        return replace(opened.start, turns=turns, allowed=frozenset(allowed))

    async def turn(self, step: int) -> Finished | None:
        """Return a recorded turn, or None."""
        found = self._entries.get(self._turn_key(step))
        if found is not None:
            return turn_from_json(found.value)
        if self._handover is not None:
            await self._handover.begin(self._turn_key(step))
        return None

    async def turn_finished(self, step: int, turn: Finished) -> None:
        """Record a turn."""
        key = self._turn_key(step)
        self._writes.add(key, turn_to_json(turn))
        is_last = not turn.message.tool_calls and key not in self._entries
        if is_last and not self._has_session:
            # Only the end of the run can follow, which is written together with it. Until then the turn is under way
            # for a handover. In a session the conversation is saved before the end, and must not have a turn more than
            # the journal.
            return
        await self._writes.flush()
        self._turn_ended(step)

    def _turn_ended(self, step: int) -> None:
        """Note that a turn is no longer under way: it is recorded."""
        if self._handover is not None:
            self._handover.end(self._turn_key(step))

    async def allowed(self) -> frozenset[str]:
        """Return the digests of the tools that are permanently allowed to the agent."""
        return await self._durable.allowed()

    async def allow(self, tool: ToolSpec, *, persistent: bool) -> None:
        """Record that a tool was allowed, permanently to the agent or to the run."""
        if persistent:
            await self._durable.allow(tool)
            return
        digest = definition_digest(tool)
        self._writes.add(self._allowed_key(digest), digest)
        await self._writes.flush()

    async def call(self, step: int, call: ToolCallPart, tool: ToolSpec | None) -> Recorded | Ask | None:
        """Return the record of a call, None to make it, or `ASK` to ask a person."""
        found = self._entries.get(self._call_key(step, call))
        if found is None:
            return None
        entry: JsonObject = found.value
        if _RESULT in entry:
            below = {run_id: usage_from_json(took) for run_id, took in entry.get("below", {}).items()}
            return Recorded(result=result_from_json(entry[_RESULT]), below=below)
        if _waits_for_input(entry):
            # `asked` has the result to continue from.
            return None
        if tool is not None:
            if self._repeats(tool) == "freely":
                return None
            if self._on_unknown == "ask":
                return ASK
        recorded = Recorded(result=outcome_unknown(call.name))
        await self.call_finished(step, call, recorded)
        return recorded

    async def answer(self, call: ToolCallPart, tool: ToolSpec) -> Approval | None:
        """Return a person's answer to a call that waited for it, given for the present definition of the tool."""
        found = self._entries.get(answer_key(self._run_id, call.id))
        if found is None:
            return None
        return answer_of(found.value, tool)

    async def asked(self, step: int, call: ToolCallPart, tool: ToolSpec) -> Asked:
        """Return the questions of the tool's server in a call so far, in all processes."""
        found = self._entries.get(self._call_key(step, call))
        repeats = self._repeats(tool)
        if found is None:
            return replace(NOTHING_ASKED, repeats=repeats)
        return asked_in(self._run_id, call.id, self._entries, waits=_waits_for_input(found.value), repeats=repeats)

    async def call_started(self, step: int, call: ToolCallPart, tool: ToolSpec) -> None:
        """Record that a call is about to reach its tool; the answer that allowed it counts for this time only."""
        await self._let_begin(step, call, tool)
        # With the entry: a process that dies after it has to ask again.
        self._writes.remove(answer_key(self._run_id, call.id))
        await self._write_begun(step, call)

    async def _write_begun(self, step: int, call: ToolCallPart) -> None:
        # Before the call is made: an entry without a result means that its outcome is unknown, and not that it was
        # never made.
        self._writes.add(self._call_key(step, call), {**self._named(call), "begun": self._durable.clock()})
        await self._writes.flush()

    async def _let_begin(self, step: int, call: ToolCallPart, tool: ToolSpec) -> None:
        """Note that a call begins, or wait for the end of a run that is handed over.

        A call of an agent is not under way itself: it is repeated, and the runs below it continue after their last
        recorded step. Runs that any other tool starts cannot be stopped without it, so they have no handover.
        """
        if self._handover is not None and not _continues(tool):
            await self._handover.begin(self._call_key(step, call))
            set_handover(None)

    def _let_end(self, step: int, call: ToolCallPart) -> None:
        """Note that a call is no longer under way: its outcome is recorded, or it was never made."""
        if self._handover is not None:
            set_handover(self._handover)
            self._handover.end(self._call_key(step, call))

    async def call_finished(self, step: int, call: ToolCallPart, recorded: Recorded) -> None:
        """Record the result of a call."""
        value: Json = {**self._named(call), _RESULT: result_to_json(recorded.result)}
        if recorded.below:
            value["below"] = {run_id: usage_to_json(took) for run_id, took in recorded.below.items()}
        self._writes.add(self._call_key(step, call), value)
        await self._writes.flush(is_result=True)
        self._let_end(step, call)

    async def waiting(self, result: RunResult, calls: Sequence[WaitingCall]) -> None:
        """Record that the run waits for answers to these calls, and release its lease.

        Raises:
            RunError: Another process has the run, or has cancelled it.
        """
        if self._record is None:
            return
        now = self._durable.clock()
        if now - self._record.created_at > self._durable.keep_seconds * _YOUNG:
            await self._renew()
        due_at, remind_at = self._durable.waiting.times(now)
        record = replace(
            self._record,
            status="waiting",
            changed_at=now,
            due_at=due_at,
            remind_at=remind_at,
            when_due=self._durable.waiting.when_due,
            steps=result.steps,
            usage=result.usage,
            by_workers=self._durable.jobs is not None,
        )
        parked = self._parked()
        known = [key for key in self._entries if not key.startswith(parked)]
        asked = waiting_changes(self._run_id, calls, known=known, now=now, ttl=self._durable.keep_seconds)
        with_questions = [call.of_call for call in calls if call.question is not None]
        for call_id in dict.fromkeys(with_questions):
            # A call may wait with several questions.
            self._mark_as_waiting(result.steps, call_id)
        waits = await self._writes.end(record, [*asked, *self._forgotten_notes()], unless_cancelled=True)
        if not waits:
            # Nothing would look at the request while the run waits: its holder has to end it.
            await self._writes.end(replace(record, status="cancelled", stop_reason="cancelled"))
        self._record = None
        if not waits:
            raise RunError("was cancelled", run_id=self._run_id, reason="cancelled")

    async def finished(self, result: RunResult) -> None:
        """Record the end of the run."""
        if self._record is None:
            return
        await self._writes.end(self._record.ended(result, self._durable.clock()), self._forgotten_notes())
        self._record = None

    async def _renew(self) -> None:
        """Keep the start and the entries of an old run as long as its record, which may wait until it would expire."""
        await self._writes.renew()
        start = await self._store.get(STARTS, self._run_id)
        if start is not None:
            await self._store.put(STARTS, self._run_id, start.value, ttl=self._durable.keep_seconds)

    def _forgotten_notes(self) -> Sequence[Change]:
        """Return the changes that forget the notes of the run as a job of workers."""
        jobs = self._durable.jobs
        if jobs is None:
            return ()
        return jobs.forgotten(self._run_id)

    @asynccontextmanager
    async def _held(
        self, cancel: Callable[[], None], sent: Sequence[Message], session: str | None
    ) -> AsyncGenerator[None, None]:
        self._opened = await self._open(sent, session)
        try:
            async with self._lease.kept(cancel):
                yield
        except Exception:
            if not self._lease.lost:
                raise
        if self._lease.lost:
            raise taken_over(self._run_id)

    async def _open(self, sent: Sequence[Message], session: str | None) -> OpenedRun | None:
        """Acquire the lease, and mark a run of the store as running in the same write; return None for a new run."""
        names = [(RUNS, self._run_id), (STARTS, self._run_id)]
        found, start_found = self._durable.known or await self._store.read(names)
        while True:
            opened = None
            changes: list[Change] = []
            if found is not None:
                record = record_of(found)
                start = await start_from_document(self._store, record, start_found)
                if not is_same_request(sent, session, start):
                    raise another_request(self._run_id)
                opened = self._running(record, start)
                changes = record_changes(opened.record)
                if record.done:
                    # It ended, and is replayed.
                    changes += ended_deletions(found, self._durable.clock())
            attempt = await self._lease.acquire(changes)
            if attempt.holder is not None:
                raise self._held_by(attempt.holder)
            if attempt.acquired and opened is not None:
                return replace(opened, record=replace(opened.record, revision=attempt.revisions[0]))
            if attempt.acquired:
                return None
            # The record was changed after it was read, by an answer or by a process that has ended meanwhile.
            found, start_found = await self._store.read(names)

    def _running(self, record: RunRecord, start: RunStart) -> OpenedRun:
        running = replace(
            record,
            status="running",
            changed_at=self._durable.clock(),
            attempts=record.attempts + 1,
            keep_seconds=self._durable.keep_seconds,
            due_at=None,
            remind_at=None,
        )
        return OpenedRun(running, start, is_first=record.status == "pending" and not record.attempts)

    @property
    def _has_session(self) -> bool:
        return self._record is not None and self._record.session is not None

    def _repeats(self, tool: ToolSpec) -> Literal["freely", "ask", "never"]:
        """Return whether a call with an unknown outcome may be repeated."""
        if self._on_unknown == "rerun" or _is_repeatable(tool):
            return "freely"
        if self._on_unknown == "ask":
            return "ask"
        return "never"

    def _mark_as_waiting(self, step: int, call_id: str) -> None:
        """Mark a call that was begun as one that waits for input: its outcome is not unknown."""
        key = f"{self._run_id}/{step:06}/call/{call_id}"
        self._writes.add(key, {**self._entries[key].value, _WAITS_FOR_INPUT: True})

    def _parked(self) -> tuple[str, ...]:
        """Return the prefixes of the keys of questions whose calls still wait: later ones of the turn."""
        ids: list[str] = []
        for key, found in self._entries.items():
            _, is_call, call_id = key.partition("/call/")
            if is_call and _waits_for_input(found.value):
                ids.append(call_id)
        return tuple(question_keys(self._run_id, call_id) for call_id in ids)

    def _named(self, call: ToolCallPart) -> Json:
        """Return the members of an entry that describe its call."""
        return {"name": call.name}

    def _turn_key(self, step: int) -> str:
        return f"{self._run_id}/{step:06}/turn"

    def _call_key(self, step: int, call: ToolCallPart) -> str:
        return f"{self._run_id}/{step:06}/call/{call.id}"

    def _allowed_key(self, digest: str) -> str:
        return f"{self._run_id}/allowed/{digest}"

    def _held_by(self, holder: JsonObject) -> RunError:
        where = holder["machine"].split(" ")[0]
        seconds = self._durable.lease_seconds
        message = f"is running elsewhere in process {holder['process']} on {where}; a process that died holds it for"
        return RunError(f"{message} {seconds:g} s at most", run_id=self._run_id, reason="error")


def _waits_for_input(entry: JsonObject) -> bool:
    """Whether the entry of a call is marked as waiting for input that its server has requested."""
    return entry.get(_WAITS_FOR_INPUT) is True


def _is_repeatable(tool: ToolSpec) -> bool:
    """Whether a call of the tool may be repeated without harm, by its annotations."""
    return _continues(tool) or tool.hint("readOnlyHint") is True or tool.hint("idempotentHint") is True


def _continues(tool: ToolSpec) -> bool:
    """Whether a repeated call of the tool continues the interrupted one, by its key."""
    return tool.server is None and tool.meta.get(RESUMABLE) is True


def is_same_request(sent: Sequence[Message], session: str | None, start: RunStart) -> bool:
    """Whether a request equals the recorded one, or is empty, which continues the run."""
    texts = [message for message in sent if isinstance(message, UserMessage)]
    if not texts:
        return True
    recorded = [message for message in start.new_messages if isinstance(message, UserMessage)]
    return texts == recorded and session == start.session


def another_request(run_id: str, taken: str = "its id, or its key,") -> RunError:
    """Return the error of a run whose id, or key, belongs to another request."""
    return RunError(f"began with something else; {taken} is taken", run_id=run_id, reason="error")
