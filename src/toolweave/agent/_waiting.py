"""Calls of a stored run that wait for a person, and the answers to them, from any process.

A run that waits (`attended="later"`) is executed by nobody: its record has the status `"waiting"`, its journal the
calls that wait. The last answer makes it pending again, and with a queue a worker goes on with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from toolweave.agent._approval import Approval, WaitingCall, definition_digest
from toolweave.agent._records import JOURNAL, RunRecord, read_record, record_change, run_topic
from toolweave.errors import RunError
from toolweave.jobs import WorkQueue
from toolweave.models._serialization import plain
from toolweave.state import Change, Delete, Put, Store, iter_documents
from toolweave.tools._spec import ToolSpec

__all__ = ["answer_key", "answer_of", "answer_waiting", "waiting_calls", "waiting_changes"]


def answer_key(run_id: str, call_id: str) -> str:
    """Return the key of the answer to a call."""
    return f"{run_id}/answer/{call_id}"


def answer_of(value: Mapping[str, Any], tool: ToolSpec) -> Approval | None:
    """Return a recorded answer, or None if the tool's definition is no longer the one that was shown."""
    if value["digest"] != definition_digest(tool):
        return None
    return Approval(approved=value["approved"], remember=value["remember"], reason=value["reason"])


def waiting_changes(
    run_id: str, calls: Sequence[WaitingCall], *, known: Collection[str], now: float, ttl: float
) -> Sequence[Change]:
    """Return the changes that record which calls wait: these, and none of the journal's `known` keys any more.

    Answers that were given for other definitions of their tools are forgotten.
    """
    wait = {_waiting_key(run_id, call.call_id): plain(asdict(replace(call, asked_at=now))) for call in calls}
    old = [key for key in known if key.startswith(_waiting_key(run_id, "")) and key not in wait]
    answers = [answer_key(run_id, call.call_id) for call in calls]
    return [
        *(Put(collection=JOURNAL, key=key, value=value, ttl=ttl) for key, value in wait.items()),
        *(Delete(collection=JOURNAL, key=key) for key in (*old, *answers)),
    ]


async def waiting_calls(store: Store, run_id: str) -> Sequence[WaitingCall]:
    """Return the calls of a run that wait and have no answer yet, the oldest first."""
    record = await read_record(store, run_id)
    return [] if record is None or record.status != "waiting" else await _unanswered(store, run_id)


async def answer_waiting(
    store: Store,
    run_id: str,
    call_id: str,
    approval: Approval,
    *,
    queue: WorkQueue | None,
    now: float,
    ttl: float,
) -> bool:
    """Answer a waiting call; return whether the run goes on, as no other call waits.

    With `remember` the answer counts for all waiting calls of the tool. The same answer may be given again.

    Raises:
        RunError: There is no such run or call, the run does not wait, or the call has another answer.
        StoreError: The store or the queue cannot be reached.
    """
    while True:
        record = await _waiting_record(store, run_id, call_id, approval)
        if record is None:
            return True
        open_calls = {one.call_id: one for one in await _unanswered(store, run_id)}
        asked = open_calls.get(call_id)
        if asked is None:
            if await _is_answered(store, run_id, call_id, approval):
                return False
            raise _error(
                run_id, f"has no call {call_id!r} that waits; those that do: {', '.join(open_calls) or 'none'}"
            )
        same = approval.approved and approval.remember is not None and not asked.repeats
        answered = [
            one
            for one in open_calls.values()
            if one is asked or (same and one.digest == asked.digest and not one.repeats)
        ]
        goes_on = len(answered) == len(open_calls)
        jobs = None if queue is None else run_topic(record.agent, store, queue, keep_seconds=ttl)
        changes = [_answer(one, approval, ttl=ttl) for one in answered]
        changed = replace(record, status="pending" if goes_on else "waiting", changed_at=now)
        # one write with the record's revision: of two who answer the last calls at once, one sees the other's answer
        notes = [jobs.note(run_id)] if goes_on and jobs is not None else []
        if await store.write([record_change(changed, ttl=ttl), *changes, *notes]) is not None:
            if goes_on and jobs is not None:
                await jobs.queue.submit(jobs.job(run_id))  # it is noted already
            return goes_on


async def _waiting_record(store: Store, run_id: str, call_id: str, approval: Approval) -> RunRecord | None:
    """Return the record of a waiting run; None if the run has gone on with the same answer.

    Raises:
        RunError: There is no such run, or it does not wait.
    """
    record = await read_record(store, run_id)
    if record is None:
        raise _error(run_id, "is not in the store")
    if record.status == "waiting":
        return record
    if await _is_answered(store, run_id, call_id, approval):
        return None
    raise _error(run_id, f"waits for nobody: its status is {record.status}")


async def _unanswered(store: Store, run_id: str) -> Sequence[WaitingCall]:
    prefix = answer_key(run_id, "")
    answered = {found.key.removeprefix(prefix) async for found in iter_documents(store, JOURNAL, prefix)}
    asked = [WaitingCall(**found.value) async for found in iter_documents(store, JOURNAL, _waiting_key(run_id, ""))]
    return sorted((one for one in asked if one.call_id not in answered), key=lambda one: one.asked_at)


async def _is_answered(store: Store, run_id: str, call_id: str, approval: Approval) -> bool:
    """Whether a call has this answer.

    Raises:
        RunError: It has another.
    """
    found = await store.get(JOURNAL, answer_key(run_id, call_id))
    if found is None:
        return False
    if found.value["approved"] is not approval.approved:
        given = "approved" if found.value["approved"] else "denied"
        raise _error(run_id, f"has an answer to call {call_id!r} already: it was {given}")
    return True


def _answer(call: WaitingCall, approval: Approval, *, ttl: float) -> Put:
    value = {**asdict(approval), "digest": call.digest}
    return Put(collection=JOURNAL, key=answer_key(call.run_id, call.call_id), value=value, ttl=ttl, expect=0)


def _waiting_key(run_id: str, call_id: str) -> str:
    return f"{run_id}/waiting/{call_id}"


def _error(run_id: str, message: str) -> RunError:
    return RunError(message, run_id=run_id, reason="error")
