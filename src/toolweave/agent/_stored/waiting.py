"""Calls of a stored run that wait for a person, and the answers to them, from any process.

No process executes a waiting run (`attended="later"`): its record has the status `"waiting"`, its journal the
calls that wait, for approval or with a question of their server. The last answer makes it pending again. A worker
continues it: the queue delivers it, or the worker finds its note in the store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Literal, TypeAlias

from toolweave._json_types import Json, JsonObject, object_or_empty
from toolweave.agent._questions import Asked, GivenAnswer, checked_answer
from toolweave.agent._stored.records import JOURNAL, RUN_NOTES, RunRecord, read_record, record_changes, run_topic
from toolweave.agent.approval import Approval, WaitingCall, definition_digest
from toolweave.errors import RunError
from toolweave.jobs import WorkQueue
from toolweave.jobs._kind import SUBMITTED_SIGNAL, JobTopic, submitted_note
from toolweave.models._serialization import plain, turn_from_json
from toolweave.protocol.client_requests import ElicitationResult
from toolweave.state import Change, Delete, Document, Put, Store, iter_documents, signal
from toolweave.tools import ToolSpec

_Answer: TypeAlias = Approval | GivenAnswer


def answer_key(run_id: str, call_id: str) -> str:
    """Return the key of the answer to a call."""
    return f"{run_id}/answer/{call_id}"


def question_keys(run_id: str, call_id: str) -> str:
    """Return how the keys begin of the questions of a call that wait."""
    return f"{_waiting_key(run_id, call_id)}:"


def answer_of(value: JsonObject, tool: ToolSpec) -> Approval | None:
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
    asked: dict[int, WaitingCall] = {}
    for number, value in _numbered(entries, _waiting_key(run_id, call_id)):
        asked[number] = WaitingCall.from_json(value)
    answered: dict[int, tuple[str, ElicitationResult]] = {}
    for number, value in _numbered(entries, answer_key(run_id, call_id)):
        answer = ElicitationResult(action=value["action"], content=value["content"])
        answered[number] = (value["asked"], answer)
    numbers = sorted(answered)
    result = Asked(
        number=max([0, *asked, *answered]),
        answers=[answered[number] for number in numbers],
        current=[answered[number] for number in numbers if number in asked],
        repeats=repeats,
    )
    if not waits or not asked:
        return result
    last = asked[max(asked)]
    asked_by = None if last.question is None else last.question.asked_by
    return replace(result, asked_by=asked_by, allowed=last.digest)


def _numbered(entries: Mapping[str, Document], key: str) -> Sequence[tuple[int, JsonObject]]:
    """Return the entries of the questions of a call, each with its number."""
    prefix = f"{key}:"
    found: list[tuple[int, JsonObject]] = []
    for name, entry in entries.items():
        number = name.removeprefix(prefix)
        if number != name and number.isdecimal():
            found.append((int(number), entry.value))
    return found


def waiting_changes(
    run_id: str, calls: Sequence[WaitingCall], *, known: Collection[str], now: float, ttl: float
) -> Sequence[Change]:
    """Return the changes that record which calls wait: these, and none of the journal's `known` keys any more.

    Answers that were given for other definitions of their tools are forgotten.
    """
    changes: list[Change] = []
    waiting_keys: set[str] = set()
    for call in calls:
        key = _waiting_key(run_id, call.call_id)
        waiting_keys.add(key)
        value = replace(call, asked_at=now).to_json()
        changes.append(Put(collection=JOURNAL, key=key, value=value, ttl=ttl))
        changes.append(Delete(collection=JOURNAL, key=answer_key(run_id, call.call_id)))
    prefix = _waiting_key(run_id, "")
    ended_keys = [key for key in known if key.startswith(prefix) and key not in waiting_keys]
    changes.extend(Delete(collection=JOURNAL, key=key) for key in ended_keys)
    return changes


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
    resumes: bool = False,
) -> bool:
    """Answer a waiting call; return whether the run continues, as no other call waits.

    With `remember` an approval counts for all waiting calls of the tool. The same answer may be given again until the
    call is made; with `resumes` after the run has ended, too, as a program that resumes a run itself may not know that.
    The one open question of a call may be named by the id of the call. Without a queue, workers of the run find it in
    the store, unless its program resumes it.

    Raises:
        RunError: The run or the call does not exist, does not wait, or is over; the call has another answer, or needs
            another kind of answer; or the answer does not fit the form.
        StoreError: The store or the queue cannot be reached.
    """
    while True:
        record = await _waiting_record(store, run_id, call_id, answer, repeated=resumes)
        ttl = record.keep_seconds
        jobs = None if queue is None else run_topic(record.agent, store, queue, keep_seconds=ttl)
        if record.status != "waiting":
            await _submit_again(jobs, record)
            return True
        open_calls = {call.call_id: call for call in await _unanswered(store, run_id)}
        asked = _named(open_calls, call_id)
        if asked is None:
            await _check_repeated(store, run_id, call_id, answer, open_calls)
            return False
        # All answers of one approval are one write, so the run never continues with some of them.
        values = _values(asked, open_calls.values(), answer)
        continues = len(values) == len(open_calls)
        changes = _answer_changes(run_id, values, ttl)
        # Workers without a queue find the run by its note. A program that resumes it itself needs none.
        has_workers = jobs is not None
        if record.by_workers and not resumes:
            has_workers = True
        if continues and has_workers:
            changes.append(submitted_note(RUN_NOTES, record.agent, run_id, at=now, ttl=ttl))
        changed = replace(record, changed_at=now)
        if continues:
            changed = replace(changed, status="pending", due_at=None, remind_at=None)
        # one write with the record's revision: of two who answer the last calls at once, one sees the other's answer
        if await store.write([*record_changes(changed), *changes]) is None:
            continue
        if continues and jobs is not None:
            await jobs.queue.submit(jobs.job(run_id))  # it is noted already
        elif continues and has_workers:
            await signal(store, SUBMITTED_SIGNAL)
        return continues


async def _submit_again(jobs: JobTopic | None, record: RunRecord) -> None:
    """Submit a run that was answered before: perhaps the queue was away then."""
    if jobs is not None and not record.done:
        await jobs.submit(record.run_id)


def _answer_changes(run_id: str, values: Mapping[str, JsonObject], ttl: float) -> list[Change]:
    return [
        Put(collection=JOURNAL, key=answer_key(run_id, key), value=value, ttl=ttl, expect=0)
        for key, value in values.items()
    ]


async def _check_repeated(
    store: Store, run_id: str, call_id: str, answer: _Answer, open_calls: Mapping[str, WaitingCall]
) -> None:
    """Check that a call which does not wait has this answer already.

    Raises:
        RunError: It has none, or another one.
    """
    if await _is_answered(store, run_id, call_id, answer):
        return
    waiting = ", ".join(open_calls) or "none"
    has_questions = any(call.of_call == call_id for call in open_calls.values())
    if not has_questions and call_id in await known_calls(store, run_id):
        raise _error(run_id, f"has a call {call_id!r}, but it does not wait; those that do: {waiting}")
    raise _error(run_id, f"has no call {call_id!r} that waits; those that do: {waiting}")


async def _waiting_record(store: Store, run_id: str, call_id: str, answer: _Answer, *, repeated: bool) -> RunRecord:
    """Return the record of a waiting run, or of one that has gone on with the same answer.

    Raises:
        RunError: The run does not exist, or it has ended, or it does not wait.
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
    open_calls: list[WaitingCall] = []
    async for found in iter_documents(store, JOURNAL, _waiting_key(run_id, "")):
        call = WaitingCall.from_json(found.value)
        if call.call_id not in answered:
            open_calls.append(call)
    return sorted(open_calls, key=lambda call: call.asked_at)


def _named(open_calls: Mapping[str, WaitingCall], call_id: str) -> WaitingCall | None:
    """Return the waiting call of an id, which may be that of the call that has one open question."""
    call = open_calls.get(call_id)
    if call is not None:
        return call
    questions = [call for call in open_calls.values() if call.of_call == call_id]
    if len(questions) == 1:
        return questions[0]
    return None


async def _is_answered(store: Store, run_id: str, call_id: str, answer: _Answer) -> bool:
    """Whether a call has this answer.

    Raises:
        RunError: It has another.
    """
    found = await store.get(JOURNAL, answer_key(run_id, call_id))
    if found is None:
        return False
    if not _is_same(found.value, answer):
        raise _error(run_id, f"has an answer to call {call_id!r} already: it was {_outcome(found.value)}")
    return True


def _is_same(recorded: JsonObject, answer: _Answer) -> bool:
    """Whether an answer is the recorded one; values that a form has added do not count."""
    if isinstance(answer, Approval):
        return recorded.get("approved") is answer.approved
    given = _result(answer)
    if recorded.get("action") != given.action:
        return False
    content = object_or_empty(recorded.get("content"))
    return all(content.get(name) == value for name, value in object_or_empty(given.content).items())


def _outcome(value: JsonObject) -> str:
    """Return a recorded answer as a past participle."""
    if "action" in value:
        return {"accept": "accepted", "decline": "declined", "cancel": "cancelled"}[value["action"]]
    if value["approved"]:
        return "approved"
    return "denied"


def _values(asked: WaitingCall, open_calls: Collection[WaitingCall], answer: _Answer) -> dict[str, Json]:
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
        content = None if given.content is None else plain(given.content)
        return {asked.call_id: {"action": given.action, "content": content, "asked": question.digest}}
    if question is not None:
        text = f"has a question {asked.call_id!r} that waits for an answer, not for a yes: accept, decline or cancel it"
        raise _error(asked.run_id, text)
    values = {asked.call_id: {**asdict(answer), "digest": asked.digest}}
    is_remembered = answer.approved and answer.remember is not None
    if is_remembered and not asked.repeats:
        for call in open_calls:
            if _is_same_approval(call, asked):
                values[call.call_id] = {**asdict(answer), "digest": call.digest}
    return values


def _is_same_approval(call: WaitingCall, asked: WaitingCall) -> bool:
    """Whether an approval that is remembered for one call holds for another one."""
    if call.question is not None or call.repeats:
        return False
    return call.digest == asked.digest


def _result(answer: GivenAnswer) -> ElicitationResult:
    if isinstance(answer, ElicitationResult):
        return answer
    return ElicitationResult.accept(answer)


def _waiting_key(run_id: str, call_id: str) -> str:
    return f"{run_id}/waiting/{call_id}"


def _error(run_id: str, message: str) -> RunError:
    return RunError(message, run_id=run_id, reason="error")
