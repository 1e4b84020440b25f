"""Calls of a stored run that wait for a person, and the answers to them, from any process.

No process executes a waiting run (`attended="later"`): its record has the status `"waiting"`, its journal the
calls that wait, for approval or with a question of their server. The last answer makes it pending again. A worker
continues it: the queue delivers it, or the worker finds its note in the store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal, TypeAlias

from toolweave.agent._approval import Approval, WaitingCall, definition_digest
from toolweave.agent._questions import Asked, GivenAnswer, checked_answer
from toolweave.agent._records import JOURNAL, RUN_NOTES, RunRecord, read_record, record_change, run_topic
from toolweave.errors import RunError
from toolweave.jobs import WorkQueue
from toolweave.jobs._kind import SUBMITTED_SIGNAL, submitted_note
from toolweave.models._serialization import plain, turn_from_json
from toolweave.protocol.client_requests import ElicitationResult
from toolweave.state import Change, Delete, Document, Put, Store, iter_documents, signal
from toolweave.tools._spec import ToolSpec

_Answer: TypeAlias = Approval | GivenAnswer


def answer_key(run_id: str, call_id: str) -> str:
    """Return the key of the answer to a call."""
    return f"{run_id}/answer/{call_id}"


def question_keys(run_id: str, call_id: str) -> str:
    """Return how the keys begin of the questions of a call that wait."""
    return f"{_waiting_key(run_id, call_id)}:"


def answer_of(value: Mapping[str, Any], tool: ToolSpec) -> Approval | None:
    """Return a recorded answer, or None if the tool's definition is no longer the one that was shown."""
    if value.get("digest") != definition_digest(tool):
        return None
    return Approval(approved=value["approved"], remember=value["remember"], reason=value["reason"])


def asked_in(
    run_id: str,
    call_id: str,
    entries: Mapping[str, Document],
    *,
    waits: bool,
    repeats: Literal["freely", "ask", "never"],
) -> Asked:
    """Return the questions of a call, by the entries of its run's journal; `waits`: the call waits for the answers."""
    asked = {
        number: WaitingCall.from_json(entries[key].value)
        for number, key in _numbered(entries, _waiting_key(run_id, call_id))
    }
    answered = {
        number: (value["asked"], ElicitationResult(action=value["action"], content=value["content"]))
        for number, key in _numbered(entries, answer_key(run_id, call_id))
        for value in [entries[key].value]
    }
    last = asked[max(asked)] if waits and asked else None
    return Asked(
        number=max([0, *asked, *answered]),
        answers=[answered[number] for number in sorted(answered)],
        asked_by=None if last is None or last.question is None else last.question.asked_by,
        current=[answered[number] for number in sorted(answered) if number in asked],
        allowed=None if last is None else last.digest,
        repeats=repeats,
    )


def _numbered(entries: Mapping[str, Document], key: str) -> Sequence[tuple[int, str]]:
    """Return the keys of the questions of a call, each with its number."""
    found = [one for one in entries if one.startswith(f"{key}:")]
    return [(int(number), one) for one in found if (number := one[len(key) + 1 :]).isdecimal()]


def waiting_changes(
    run_id: str, calls: Sequence[WaitingCall], *, known: Collection[str], now: float, ttl: float
) -> Sequence[Change]:
    """Return the changes that record which calls wait: these, and none of the journal's `known` keys any more.

    Answers that were given for other definitions of their tools are forgotten.
    """
    wait = {_waiting_key(run_id, call.call_id): replace(call, asked_at=now).to_json() for call in calls}
    old = [key for key in known if key.startswith(_waiting_key(run_id, "")) and key not in wait]
    answers = [answer_key(run_id, call.call_id) for call in calls]
    return [
        *(Put(collection=JOURNAL, key=key, value=value, ttl=ttl) for key, value in wait.items()),
        *(Delete(collection=JOURNAL, key=key) for key in (*old, *answers)),
    ]


async def waiting_calls(store: Store, run_id: str) -> Sequence[WaitingCall]:
    """Return the calls of a run that wait and have no answer yet, the oldest first."""
    record = await read_record(store, run_id)
    if record is None or record.status != "waiting":
        return []
    return await _unanswered(store, run_id)


async def known_calls(store: Store, run_id: str) -> frozenset[str]:
    """Return the ids of all calls and questions in a run's journal, whether they wait or not."""
    prefix = f"{run_id}/"
    known = set[str]()
    async for found in iter_documents(store, JOURNAL, prefix):
        kind, _, rest = found.key.removeprefix(prefix).partition("/")
        if kind in ("waiting", "answer"):
            known.add(rest)
        elif rest.startswith("call/"):
            known.add(rest.removeprefix("call/"))
        elif rest == "turn":  # with the calls that have not begun
            known.update(call.id for call in turn_from_json(found.value).message.tool_calls)
    return frozenset(known)


async def answer_waiting(
    store: Store,
    run_id: str,
    call_id: str,
    answer: _Answer,
    *,
    queue: WorkQueue | None,
    now: float,
    ttl: float,
    resumes: bool = False,
) -> bool:
    """Answer a waiting call; return whether the run continues, as no other call waits.

    With `remember` an approval counts for all waiting calls of the tool. The same answer may be given again until the
    call is made; with `resumes` after the run has ended, too, as a program that resumes a run itself may not know that.
    The one open question of a call may be named by the id of the call. Without a queue, workers of the run find it in
    the store, unless its program resumes it.

    Raises:
        RunError: There is no such run or call, the run does not wait, the run or the call is over, the call has another
            answer, or needs another kind of answer; or the answer does not fit the form.
        StoreError: The store or the queue cannot be reached.
    """
    while True:
        record = await _waiting_record(store, run_id, call_id, answer, repeated=resumes)
        jobs = None if queue is None else run_topic(record.agent, store, queue, keep_seconds=ttl)
        if record.status != "waiting":
            if jobs is not None and not record.done:  # perhaps the queue was away when it was answered
                await jobs.submit(run_id)
            return True
        noted = jobs is not None or (record.by_workers and not resumes)
        open_calls = {one.call_id: one for one in await _unanswered(store, run_id)}
        asked = _named(open_calls, call_id)
        if asked is None:
            if await _is_answered(store, run_id, call_id, answer):
                return False
            asks = any(one.of_call == call_id for one in open_calls.values())  # with several questions
            known = not asks and call_id in await known_calls(store, run_id)
            text = f"has a call {call_id!r}, but it does not wait" if known else f"has no call {call_id!r} that waits"
            raise _error(run_id, f"{text}; those that do: {', '.join(open_calls) or 'none'}")
        values = _values(asked, open_calls.values(), answer)
        goes_on = len(values) == len(open_calls)
        changes = [
            Put(collection=JOURNAL, key=answer_key(run_id, one), value=value, ttl=ttl, expect=0)
            for one, value in values.items()
        ]
        changed = replace(record, status="pending" if goes_on else "waiting", changed_at=now)
        # one write with the record's revision: of two who answer the last calls at once, one sees the other's answer
        notes = [submitted_note(RUN_NOTES, record.agent, run_id, at=now, ttl=ttl)] if goes_on and noted else []
        if await store.write([record_change(changed, ttl=ttl), *changes, *notes]) is not None:
            if notes and jobs is None:
                await signal(store, SUBMITTED_SIGNAL)
            if goes_on and jobs is not None:
                await jobs.queue.submit(jobs.job(run_id))  # it is noted already
            return goes_on


async def _waiting_record(store: Store, run_id: str, call_id: str, answer: _Answer, *, repeated: bool) -> RunRecord:
    """Return the record of a waiting run, or of one that has gone on with the same answer.

    Raises:
        RunError: There is no such run, or it has ended, or it does not wait.
    """
    record = await read_record(store, run_id)
    if record is None:
        raise _error(run_id, "is not in the store")
    if record.done and not repeated:
        raise _error(run_id, f"has ended: its status is {record.status}")
    if record.status == "waiting":
        return record
    if await _is_answered(store, run_id, call_id, answer):
        return record
    if record.done:
        raise _error(run_id, f"has ended: its status is {record.status}")
    raise _error(run_id, f"is not waiting for an answer (status {record.status})")


async def _unanswered(store: Store, run_id: str) -> Sequence[WaitingCall]:
    prefix = answer_key(run_id, "")
    answered = {found.key.removeprefix(prefix) async for found in iter_documents(store, JOURNAL, prefix)}
    waiting = iter_documents(store, JOURNAL, _waiting_key(run_id, ""))
    asked = [WaitingCall.from_json(found.value) async for found in waiting]
    return sorted((one for one in asked if one.call_id not in answered), key=lambda one: one.asked_at)


def _named(open_calls: Mapping[str, WaitingCall], call_id: str) -> WaitingCall | None:
    """Return the waiting call of an id, which may be that of the call that has one open question."""
    of_call = [one for one in open_calls.values() if one.of_call == call_id]
    return open_calls.get(call_id) or (of_call[0] if len(of_call) == 1 else None)


async def _is_answered(store: Store, run_id: str, call_id: str, answer: _Answer) -> bool:
    """Whether a call has this answer.

    Raises:
        RunError: It has another.
    """
    found = await store.get(JOURNAL, answer_key(run_id, call_id))
    if found is None:
        return False
    if isinstance(answer, Approval):
        same = found.value.get("approved") is answer.approved
    else:
        given = _result(answer)
        content: Mapping[str, Any] = found.value.get("content") or {}
        values = given.content or {}
        same = found.value.get("action") == given.action and all(content.get(name) == values[name] for name in values)
    if not same:
        raise _error(run_id, f"has an answer to call {call_id!r} already: it was {_told(found.value)}")
    return True


def _told(value: Mapping[str, Any]) -> str:
    """Return a recorded answer in words."""
    if "action" in value:
        return {"accept": "accepted", "decline": "declined", "cancel": "cancelled"}[value["action"]]
    if value["approved"]:
        return "approved"
    return "denied"


def _values(asked: WaitingCall, open_calls: Collection[WaitingCall], answer: _Answer) -> dict[str, dict[str, Any]]:
    """Return the answers to record, by the ids of their calls and questions.

    Raises:
        RunError: The call needs another kind of answer, or the answer does not fit its form.
    """
    question = asked.question
    if not isinstance(answer, Approval):
        if question is None:
            text = f"has a call {asked.call_id!r} that waits for a yes or a no, not for an answer: approve or deny it"
            raise _error(asked.run_id, text)
        given = checked_answer(asked.run_id, asked.call_id, question, answer)
        if given.content is None:
            content = None
        else:
            content = plain(given.content)
        return {asked.call_id: {"action": given.action, "content": content, "asked": question.digest}}
    if question is not None:
        text = f"has a question {asked.call_id!r} that waits for an answer, not for a yes: accept, decline or cancel it"
        raise _error(asked.run_id, text)
    same = answer.approved and answer.remember is not None and not asked.repeats
    return {
        one.call_id: {**asdict(answer), "digest": one.digest}
        for one in open_calls
        if one is asked or (same and one.question is None and one.digest == asked.digest and not one.repeats)
    }


def _result(answer: GivenAnswer) -> ElicitationResult:
    if isinstance(answer, ElicitationResult):
        return answer
    return ElicitationResult.accept(answer)


def _waiting_key(run_id: str, call_id: str) -> str:
    return f"{run_id}/waiting/{call_id}"


def _error(run_id: str, message: str) -> RunError:
    return RunError(message, run_id=run_id, reason="error")
