"""Durable runs: the journal of a run, and the conversations of sessions, in a store.

Records the turns and calls that the loop reports, and replays them; knows no model and runs no tool.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import copy
from dataclasses import replace
from itertools import count
from typing import Any, Literal, TypeAlias

import anyio

from toolweave.agent._approval import Approval, WaitingCall, definition_digest
from toolweave.agent._events import RunResult
from toolweave.agent._handover import current_handover, set_handover
from toolweave.agent._journal import ASK, Ask, Journal, Recorded, RunStart, outcome_unknown
from toolweave.agent._questions import NOTHING_ASKED, Asked
from toolweave.agent._records import (
    APPROVALS,
    CONVERSATIONS,
    JOURNAL,
    LEASES,
    RUNS,
    STARTS,
    RunRecord,
    common,
    conversation,
    conversation_form,
    conversation_key,
    create,
    ended_signal,
    messages_in_document,
    read_record,
    read_start,
    record_change,
    record_of,
    run_topic,
    start_from_document,
    write_record,
)
from toolweave.agent._waiting import answer_key, answer_of, asked_in, question_keys, waiting_changes
from toolweave.errors import RunError, StoreError
from toolweave.jobs import WorkBackend, WorkQueue
from toolweave.jobs._kind import JobTopic
from toolweave.jobs._lease import LEASE_SECONDS, Lease
from toolweave.models._base import Finished
from toolweave.models._messages import Message, ToolCallPart, UserMessage
from toolweave.models._serialization import (
    messages_from_json,
    messages_to_json,
    result_from_json,
    result_to_json,
    turn_from_json,
    turn_to_json,
    usage_from_json,
    usage_to_json,
)
from toolweave.state import Change, Document, Put, Store, iter_documents
from toolweave.state._store import to_json
from toolweave.tools._call import RESUMABLE
from toolweave.tools._spec import ToolSpec

_log = logging.getLogger("toolweave.agent")

OnUnknown: TypeAlias = Literal["error", "ask", "rerun"]
"""Policy for a call that had started when its process died, and that must not be repeated.

`"error"`: the model reads that its outcome is unknown; `"ask"`: a person is asked whether to repeat it, and if not the
model reads that; `"rerun"`: it is repeated.
"""

_RESULT = "result"
"""The member of a call's entry that holds its result, once it has ended."""
_WAITS_FOR_INPUT = "asked"
"""The member of a call's entry that says that it waits for input that its server has asked for."""
WORKER_LEASE_SECONDS = 5.0
"""Time to live of the lease of a run that workers execute; a worker that does not renew it in time loses the run."""
_CANCELLED_SECONDS = 5.0
"""Seconds in which a result is still written when its run is cancelled meanwhile."""
_FIRST_PAUSE = 0.05
_LAST_PAUSE = 1.0
"""Seconds until an entry that the store refused is written again; the wait doubles."""
KEEP_SECONDS = 30 * 86_400.0
"""Seconds that a run is kept after its last write; conversations are kept forever."""


class Durable:
    """An agent's persistence in a store: runs, conversations and approvals.

    Args:
        store: The store.
        agent: The agent's name, which prefixes the keys of its conversations.
        on_unknown: Policy for calls with an unknown outcome.
        clock: Returns the time in seconds.
        lease_seconds: Seconds until the run of a silent process may be taken over.
        sleep: Waits between lease renewals, and between polls of another process's run.
        keep_seconds: Seconds that a run is kept after its last write.
        queue: Queue of the runs for workers; without one, spawned runs execute in this process.

    Attributes:
        conversations: Its conversations, by session.
        jobs: Its runs as jobs of workers, or None without a queue.
        known: The record and the start of one run, if they were just read.
    """

    def __init__(
        self,
        store: Store,
        *,
        agent: str = "agent",
        on_unknown: OnUnknown = "error",
        clock: Callable[[], float] = time.time,
        lease_seconds: float = LEASE_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        keep_seconds: float = KEEP_SECONDS,
        queue: WorkQueue | None = None,
    ) -> None:
        self.store = store
        self.queue = queue
        if queue is None:
            self.jobs: JobTopic | None = None
        else:
            self.jobs = run_topic(agent, store, queue, clock=clock, keep_seconds=keep_seconds)
        self.agent = agent
        self.on_unknown: OnUnknown = on_unknown
        self.clock = clock
        self.keep_seconds = keep_seconds
        self.conversations: StoreConversations = StoreConversations(store, agent)
        self.lease_seconds = lease_seconds
        self.known: tuple[Document, Document | None] | None = None
        self.sleep = sleep

    def journal(self, run_id: str, *, on_unknown: OnUnknown | None = None) -> StoreJournal:
        """Return the journal of a run, new or not."""
        lease = Lease(self.store, LEASES, run_id, seconds=self.lease_seconds, sleep=self.sleep)
        return StoreJournal(self, run_id, lease, on_unknown=on_unknown)

    def with_unknown_policy(self, on_unknown: OnUnknown | None) -> Durable:
        """Return a copy with another policy for calls with an unknown outcome; None keeps the present one."""
        other = copy(self)
        other.on_unknown = on_unknown or self.on_unknown
        return other

    def with_record(self, found: Document, start: Document | None) -> Durable:
        """Return a copy for one run, whose record and start were just read."""
        other = copy(self)
        other.known = (found, start)
        return other

    async def allowed(self) -> frozenset[str]:
        """Return the `definition_digest`s of the tools that are permanently allowed."""
        known = iter_documents(self.store, APPROVALS, f"{self.agent}/")
        return frozenset([found.value async for found in known if found.key == f"{self.agent}/{found.value}"])

    async def allow(self, tool: ToolSpec) -> None:
        """Allow a tool permanently, by its present definition."""
        digest = definition_digest(tool)
        await self.store.put(APPROVALS, f"{self.agent}/{digest}", digest)


def make_durable(
    name: str, store: Store | None, backend: WorkBackend | None, on_unknown: OnUnknown = "error"
) -> Durable | None:
    """Return an agent's persistence in a store or a backend; None without either.

    Raises:
        ValueError: There are both.
    """
    if backend is None:
        if store is None:
            return None
        return Durable(store, agent=name, on_unknown=on_unknown)
    if store is not None:
        raise ValueError(f"agent {name!r}: a backend has a store; give it to that: Backend(url, store=...)")
    return Durable(
        backend.store, agent=name, queue=backend.queue, on_unknown=on_unknown, lease_seconds=WORKER_LEASE_SECONDS
    )


class StoreConversations:
    """Conversations in a store, under the agent's name."""

    def __init__(self, store: Store, agent: str) -> None:
        self._store = store
        self._agent = agent

    async def load(self, session: str) -> Sequence[Message]:
        """Return the conversation so far; empty for a new one."""
        return messages_from_json(await conversation(self._store, self._agent, session))

    async def save(self, session: str, messages: Sequence[Message]) -> None:
        """Save a conversation, merged with messages that other processes or runs have added meanwhile."""
        wanted = messages_to_json(messages)
        key = conversation_key(self._agent, session)
        while True:
            found = await self._store.get(CONVERSATIONS, key)
            kept = [] if found is None else messages_in_document(found)
            value = conversation_form(_merged(kept, wanted))
            revision = 0 if found is None else found.revision
            if await self._store.put(CONVERSATIONS, key, value, expect=revision) is not None:
                return


class StoreJournal(Journal):
    """The journal of one run in a store; see `Journal` for the order of calls.

    An entry is written once: of two processes that both execute the run, one fails.
    """

    def __init__(self, durable: Durable, run_id: str, lease: Lease, *, on_unknown: OnUnknown | None) -> None:
        self._durable = durable
        self._store = durable.store
        self._run_id = run_id
        self._lease = lease
        self._asked: OnUnknown | None = on_unknown
        self._on_unknown: OnUnknown = on_unknown or durable.on_unknown
        self._record: RunRecord | None = None
        self._begun: RunRecord | None = None  # with the lease, in one step
        self._known = durable.known
        self._start: Document | None = None
        self._is_new = False
        self._session: str | None = None
        self._unwritten: Put | None = None
        self._entries: dict[str, Document] = {}
        self._handover = current_handover()

    def held(self, cancel: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        """Hold the run's lease, renewed by a task of its own."""
        return self._held(cancel)

    async def started(self, start: RunStart) -> RunStart:
        """Record a new run, or return the recorded start.

        Raises:
            RunError: Another process started it at the same time, it is not complete in the store any more, or its
                recorded request differs from this one.
        """
        record = self._begun
        ttl = self._durable.keep_seconds
        if record is None and not self._is_new:
            record = await read_record(self._store, self._run_id)
        now = self._durable.clock()
        if record is None:
            self._record = self._unless_taken(await create(self._store, start, status="running", now=now, ttl=ttl))
            return start
        self._session = record.session
        if self._start:
            began = await start_from_document(self._store, record, self._start)
        else:
            began = await read_start(self._store, record)
        if not same_request(start, began):
            raise RunError(
                "began with something else; its id, or its key, is taken", run_id=self._run_id, reason="error"
            )
        self._on_unknown = self._asked or began.on_unknown or self._durable.on_unknown
        if self._begun is not None:  # for the first time, so nothing is written of it
            self._record = record
            return began
        self._entries = {found.key: found async for found in iter_documents(self._store, JOURNAL, f"{self._run_id}/")}
        again = replace(record, status="running", changed_at=now, attempts=record.attempts + 1)
        self._record = self._unless_taken(await write_record(self._store, again, ttl=ttl))
        turns = next(step for step in count() if self._turn_key(step + 1) not in self._entries)
        allowed = [found.value for key, found in self._entries.items() if key == self._allowed_key(found.value)]
        return replace(began, turns=turns, allowed=frozenset(allowed))

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
        value = turn_to_json(turn)
        if turn.message.tool_calls or self._session is not None or key in self._entries:
            await self._write(key, value)
        else:  # nothing comes of it but the end of the run: they are written together
            self._unwritten = Put(collection=JOURNAL, key=key, value=value, ttl=self._durable.keep_seconds, expect=0)
            return  # still under way: the end of the run follows at once, and records it
        self._turn_ended(step)

    def _turn_ended(self, step: int) -> None:
        """Note that a turn is under way no more: it is recorded."""
        if self._handover is not None:
            self._handover.end(self._turn_key(step))

    async def allowed(self) -> frozenset[str]:
        """Return the digests of the tools that are permanently allowed to the agent."""
        return await self._durable.allowed()

    async def allow(self, tool: ToolSpec, *, persistent: bool) -> None:
        """Record that a tool was allowed, permanently to the agent or to the run."""
        if persistent:
            await self._durable.allow(tool)
        else:
            digest = definition_digest(tool)
            await self._write(self._allowed_key(digest), digest)

    async def call(self, step: int, call: ToolCallPart, tool: ToolSpec | None) -> Recorded | Ask | None:
        """Return the record of a call, None to make it, or `ASK` to ask a person."""
        key = self._call_key(step, call)
        found = self._entries.get(key)
        if found is None:
            return None
        if _RESULT in found.value:
            below = {run_id: usage_from_json(took) for run_id, took in found.value.get("below", {}).items()}
            return Recorded(result=result_from_json(found.value[_RESULT]), below=below)
        if found.value.get(_WAITS_FOR_INPUT) is True:  # `asked` has the result to continue from
            return None
        if tool is not None and (self._on_unknown == "rerun" or _is_repeatable(tool)):
            return None
        if tool is not None and self._on_unknown == "ask":
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
        freely = self._on_unknown == "rerun" or _is_repeatable(tool)
        repeats: Literal["freely", "ask", "never"] = (
            "freely" if freely else "ask" if self._on_unknown == "ask" else "never"
        )
        if found is None:
            return replace(NOTHING_ASKED, repeats=repeats)
        waits = found.value.get(_WAITS_FOR_INPUT) is True
        return asked_in(self._run_id, call.id, self._entries, waits=waits, repeats=repeats)

    async def call_started(self, step: int, call: ToolCallPart, tool: ToolSpec) -> None:
        """Record that a call is about to reach its tool; the answer that allowed it counts for this time only."""
        await self._let_begin(step, call, tool)
        answer = answer_key(self._run_id, call.id)
        if self._entries.pop(answer, None) is not None:
            await self._store.delete(JOURNAL, answer)  # before: a process that dies in between has to ask again
        await self._write(self._call_key(step, call), {**self._named(call), "begun": self._durable.clock()})

    async def _let_begin(self, step: int, call: ToolCallPart, tool: ToolSpec) -> None:
        """Note that a call begins, or wait for the end of a run that is handed over.

        A call of an agent is not under way itself: it is repeated, and the runs below it continue after their last
        recorded step. Runs that any other tool starts cannot be stopped without it, so they have no handover.
        """
        if self._handover is not None and not _continues(tool):
            await self._handover.begin(self._call_key(step, call))
            set_handover(None)

    def _let_end(self, step: int, call: ToolCallPart) -> None:
        """Note that a call is under way no more: its outcome is recorded, or it was never made."""
        if self._handover is not None:
            set_handover(self._handover)
            self._handover.end(self._call_key(step, call))

    async def call_finished(self, step: int, call: ToolCallPart, recorded: Recorded) -> None:
        """Record the result of a call."""
        value: dict[str, Any] = {**self._named(call), _RESULT: result_to_json(recorded.result)}
        if recorded.below:
            value["below"] = {run_id: usage_to_json(took) for run_id, took in recorded.below.items()}
        await self._write(self._call_key(step, call), value)
        self._let_end(step, call)

    async def waiting(self, result: RunResult, calls: Sequence[WaitingCall]) -> None:
        """Record that the run waits for answers to these calls, and give back its lease."""
        if self._record is None:
            return
        now = self._durable.clock()
        ttl = self._durable.keep_seconds
        jobs = self._durable.jobs
        record = replace(
            self._record,
            status="waiting",
            changed_at=now,
            steps=result.steps,
            usage=result.usage,
            by_workers=jobs is not None,
        )
        notes: Sequence[Change] = () if jobs is None else jobs.forgotten(self._run_id)
        parked = self._parked()
        known = [key for key in self._entries if not key.startswith(parked)]
        asked = waiting_changes(self._run_id, calls, known=known, now=now, ttl=ttl)
        marks = [self._mark(result.steps, call) for call in calls if call.question is not None]
        changes = [record_change(record, ttl=ttl), *asked, *dict(marks).values(), *notes]
        revisions = self._unless_taken(await self._lease.give_back_with(changes, tell=ended_signal(self._run_id)))
        self._record = replace(record, revision=revisions[0])

    async def finished(self, result: RunResult) -> None:
        """Record the end of the run."""
        if self._record is None:
            return
        record = self._record.ended(result, self._durable.clock())
        ttl = self._durable.keep_seconds
        turn = [] if self._unwritten is None else [self._unwritten]
        jobs = self._durable.jobs
        notes: Sequence[Change] = () if jobs is None else jobs.forgotten(self._run_id)
        changes = [record_change(record, ttl=ttl), *turn, *notes]
        revisions = await self._lease.give_back_with(changes, tell=ended_signal(self._run_id))
        if revisions is not None:
            self._unwritten = None
            self._record = replace(record, revision=revisions[0])
            return
        await self._write_rest()
        written = await write_record(self._store, record, ttl=ttl)
        if written is None and await self._is_gone(RUNS, self._run_id):
            written = await write_record(self._store, replace(record, revision=0), ttl=ttl)
        self._record = self._unless_taken(written)

    @asynccontextmanager
    async def _held(self, cancel: Callable[[], None]) -> AsyncGenerator[None, None]:
        if not await self._start_with_lease():
            holder = await self._lease.take()
            if holder is not None:
                raise self._held_by(holder)
        try:
            async with self._lease.kept(cancel):
                yield
        except Exception:
            if not self._lease.lost:
                raise
        if self._lease.lost:
            raise self._taken()

    async def _start_with_lease(self) -> bool:
        """Take the lease of a run that waits for its first worker and record that it is running, atomically."""
        known = self._known
        self._known = None
        found, start = known or await self._store.read([(RUNS, self._run_id), (STARTS, self._run_id)])
        record = None if found is None else record_of(found)
        self._is_new = record is None
        if record is None or start is None or record.status != "pending" or record.attempts:
            return False
        now = self._durable.clock()
        ttl = self._durable.keep_seconds
        begun = replace(record, status="running", changed_at=now, attempts=1)
        revisions = await self._lease.take_with([record_change(begun, ttl=ttl)])
        if revisions is not None:
            self._begun = replace(begun, revision=revisions[0])
            self._start = start
        return revisions is not None

    def _mark(self, step: int, call: WaitingCall) -> tuple[str, Put]:
        """Return the change by which a call that was begun waits for input; its outcome is not unknown."""
        begun = self._entries[f"{self._run_id}/{step:06}/call/{call.of_call}"]
        value = {**begun.value, _WAITS_FOR_INPUT: True}
        ttl = self._durable.keep_seconds
        return begun.key, Put(collection=JOURNAL, key=begun.key, value=value, ttl=ttl, expect=begun.revision)

    def _parked(self) -> tuple[str, ...]:
        """Return how the keys of questions begin that belong to calls which still wait: later ones of the turn."""
        entries = [(key, found.value) for key, found in self._entries.items() if "/call/" in key]
        ids = [key.partition("/call/")[2] for key, value in entries if value.get(_WAITS_FOR_INPUT) is True]
        return tuple(question_keys(self._run_id, call_id) for call_id in ids)

    async def _write_rest(self) -> None:
        rest = self._unwritten
        self._unwritten = None
        if rest is not None:
            await self._write(rest.key, rest.value)

    async def _write(self, key: str, value: Any) -> None:
        await self._write_rest()
        old = self._entries.get(key)
        ttl = self._durable.keep_seconds
        expect = 0 if old is None else old.revision
        revision = await self._put_entry(Put(collection=JOURNAL, key=key, value=value, ttl=ttl, expect=expect))
        if revision is None and old is not None and await self._is_gone(JOURNAL, key):
            revision = await self._store.put(JOURNAL, key, value, ttl=ttl, expect=0)
        self._entries[key] = Document(key=key, value=value, revision=self._unless_taken(revision))

    async def _put_entry(self, entry: Put) -> int | None:
        """Write an entry; the result of a call also when the run is cancelled meanwhile, within a time limit."""
        try:
            return await self._put_again(entry)
        except anyio.get_cancelled_exc_class():
            if _RESULT in entry.value:  # only this process knows it, and the run may continue elsewhere
                with anyio.move_on_after(_CANCELLED_SECONDS, shield=True):
                    await self._put_again(entry, again=True)
            raise

    async def _put_again(self, entry: Put, *, again: bool = False) -> int | None:
        """Write an entry, again while the store refuses it or is away; return None when another process has the run.

        Only this process knows the result of a call: if the attempt ended instead, the outcome of that call would be
        unknown, and calls beside it would be cancelled. Workers try until the lease is known to be another's. Elsewhere
        a caller waits: results are tried for the lifetime of a lease, and other entries once. A try that failed may
        have been done, so the next one first looks; `again` says that there was such a try.

        Raises:
            StoreError: The value is not JSON, or the store has refused it for too long.
        """
        text = to_json(JOURNAL, entry.key, entry.value)  # raises if the value is to blame, not the store
        if _RESULT in entry.value:
            waits = self._durable.lease_seconds
        else:
            waits = 0.0
        pause = _FIRST_PAUSE
        deadline = anyio.current_time() + waits
        while True:
            try:
                if again:
                    if not await self._lease.is_ours():
                        return None
                    found = await self._store.get(JOURNAL, entry.key)
                    if found is not None and to_json(JOURNAL, entry.key, found.value) == text:
                        return found.revision
                return await self._store.put(JOURNAL, entry.key, entry.value, ttl=entry.ttl, expect=entry.expect)
            except StoreError as exc:
                if self._durable.queue is None and anyio.current_time() + pause >= deadline:
                    raise
                if not again:
                    _log.warning("run %s: its journal cannot be written, trying again: %s", self._run_id, exc)
            again = True
            await anyio.sleep(pause)
            pause = min(_LAST_PAUSE, 2 * pause)

    async def _is_gone(self, collection: str, key: str) -> bool:
        """Return whether a document of this run has expired (a clock change), while no other process has the run."""
        return await self._store.get(collection, key) is None and await self._lease.is_ours()

    def _named(self, call: ToolCallPart) -> dict[str, Any]:
        """Return the members of an entry that describe its call."""
        return {"name": call.name}

    def _turn_key(self, step: int) -> str:
        return f"{self._run_id}/{step:06}/turn"

    def _call_key(self, step: int, call: ToolCallPart) -> str:
        return f"{self._run_id}/{step:06}/call/{call.id}"

    def _allowed_key(self, digest: str) -> str:
        return f"{self._run_id}/allowed/{digest}"

    def _unless_taken(self, written: Any) -> Any:
        if written is None:
            raise self._taken()
        return written

    def _taken(self) -> RunError:
        return RunError("was taken over by another process; follow it there", run_id=self._run_id, reason="error")

    def _held_by(self, holder: Mapping[str, Any]) -> RunError:
        where = holder["machine"].split(" ")[0]
        seconds = self._durable.lease_seconds
        message = f"is running elsewhere in process {holder['process']} on {where}; a process that died holds it for"
        return RunError(f"{message} {seconds:g} s at most", run_id=self._run_id, reason="error")


def _is_repeatable(tool: ToolSpec) -> bool:
    """Whether a call of the tool may be repeated without harm, by its annotations."""
    return _continues(tool) or tool.hint("readOnlyHint") is True or tool.hint("idempotentHint") is True


def _continues(tool: ToolSpec) -> bool:
    """Whether a repeated call of the tool continues the interrupted one, by its key."""
    return tool.server is None and tool.meta.get(RESUMABLE) is True


def same_request(now: RunStart, began: RunStart) -> bool:
    """Whether a request equals the recorded one, or is empty, which continues the run."""
    said, known = (
        [one for one in start.messages[len(start.messages) - start.sent :] if isinstance(one, UserMessage)]
        for start in (now, began)
    )
    return not said or (said == known and now.session == began.session)


def _merged(kept: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a conversation with the messages that a run added, though others may have extended it meanwhile."""
    shared = common(kept, wanted)
    rest = kept[shared:]
    completes = (
        len(rest) == 1 and shared < len(wanted) and rest[0]["role"] == "tool" and wanted[shared]["role"] == "tool"
    )
    if not rest or completes:
        return wanted
    return [*kept, *wanted[shared:]]
