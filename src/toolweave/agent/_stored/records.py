"""Store documents of a run: its record, its start, and the indexes by time and by parent.

Knows documents and no loop: the journal writes them, the views of `status.py` and `tree.py` read them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import unquote

from toolweave._json_types import Json, JsonObject, as_number, as_text, object_or_empty, only_members, text_or_empty
from toolweave.agent._events import RunResult
from toolweave.agent._journal import RunStart
from toolweave.agent._stored.deadlines import WhenDue
from toolweave.agent._stored.run_index import CHILDREN, start_entries, status_entries, with_expiry
from toolweave.errors import RunError, StoreError
from toolweave.jobs import WorkQueue
from toolweave.jobs._kind import JobCollections, JobTopic
from toolweave.jobs.retention import KEEP_SECONDS
from toolweave.models import Message, Usage, UserMessage
from toolweave.models._serialization import (
    messages_from_json,
    messages_to_json,
    plain,
    usage_from_json,
    usage_to_json,
)
from toolweave.state import Change, Document, Put, Store, iter_documents

_log = logging.getLogger("toolweave.agent")

RUNS = "runs"
"""A `RunRecord` by run id."""
STARTS = "run-starts"
"""The start of a run, by run id: its only document that may be large."""
JOURNAL = "run-journal"
"""Finished turns and calls, below the run's id."""
RUN_NOTES = JobCollections("run", "agent")
LEASES = RUN_NOTES.leases
"""The lease of a run, by run id; absent when no process executes it."""
CONVERSATIONS = "conversations"
"""The messages of a conversation, by agent and session."""
APPROVALS = "approvals"
"""Digests of the tools that are permanently allowed to an agent, below its name."""

_BATCH = 200
"""Documents that are read at once; even, so that the two of a pair are read together."""
_FORM = 1

RecordedStatus: TypeAlias = Literal["pending", "running", "waiting", "completed", "stopped", "cancelled", "failed"]
"""The status in a run's record; a run that is `"running"` without a lease was interrupted, and one that is `"waiting"`
waits for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The record of a run in a store.

    Attributes:
        session: The conversation that it continues, or None.
        parent_id: The run whose tool started it, or None.
        depth: Nesting depth: the number of runs above it.
        group: The group that it was spawned in, or None when it was not spawned.
        prompt: The beginning of the text that was sent.
        created_at: Time of its creation in seconds, by its creator's clock.
        changed_at: Time of the record's last write in seconds.
        attempts: Number of times that it was started; more than one after an interruption.
        text: The last text of the model, once the run has ended.
        stop_reason: The reason for its end, or None.
        error: The error that made it fail, or None.
        keep_seconds: Seconds that the run is kept after its last change.
        due_at: The deadline for an answer while it waits for a person, in seconds since the epoch, or None.
        remind_at: The time of the reminder before the deadline, or None.
        when_due: What happens at the deadline.
        by_workers: Whether workers continue it once its calls that wait for a person are answered.
        revision: Revision of the document.
    """

    run_id: str
    agent: str
    status: RecordedStatus
    session: str | None = None
    parent_id: str | None = None
    depth: int = 0
    group: str | None = None
    prompt: str = ""
    created_at: float = 0.0
    changed_at: float = 0.0
    attempts: int = 0
    text: str = ""
    output: Any = None  # any JSON value
    stop_reason: str | None = None
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    error: str | None = None
    by_workers: bool = False
    keep_seconds: float = KEEP_SECONDS
    due_at: float | None = None
    remind_at: float | None = None
    when_due: WhenDue = "deny"
    revision: int = 0

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self.status not in ("pending", "running", "waiting")

    def ended(self, result: RunResult, now: float) -> RunRecord:
        """Return the record with the run's result."""
        return replace(
            self,
            status=cast("RecordedStatus", result.status),
            changed_at=now,
            text=result.text,
            output=_as_json(result.output),
            stop_reason=result.stop_reason,
            steps=result.steps,
            usage=result.usage,
            error=None if result.error is None else str(result.error),
        )


def _as_json(output: Any) -> Any:
    """Return a validated answer as JSON: it may be a model, a dataclass or any other type."""
    import msgspec  # only answers with a type of their own need it

    def dump(value: Any) -> Any:
        model_dump = getattr(value, "model_dump", None)
        if callable(model_dump):
            return model_dump(mode="json")
        return str(value)

    if output is None:
        return None
    return plain(msgspec.to_builtins(output, enc_hook=dump, str_keys=True))


async def create(
    store: Store,
    start: RunStart,
    *,
    status: RecordedStatus,
    now: float,
    ttl: float,
    group: str | None = None,
    also: Sequence[Change] = (),
) -> RunRecord | None:
    """Write a new run, indexed by its parent and its `group`, atomically with the changes in `also`.

    Returns None when the id is taken, or an `expect` of the other changes does not hold.
    """
    record = RunRecord(
        run_id=start.run_id,
        agent=start.agent,
        status=status,
        session=start.session,
        parent_id=start.parent_id,
        depth=start.depth,
        group=group,
        prompt=first_text(start.new_messages),
        created_at=now,
        changed_at=now,
        attempts=1 if status == "running" else 0,
        keep_seconds=ttl,
    )
    revisions = await store.write(
        [
            *record_changes(record),
            Put(collection=STARTS, key=start.run_id, value=await _start_form(store, start), ttl=ttl),
            *start_entries(record, ttl),
            *also,
        ]
    )
    if revisions is None:
        return None
    return replace(record, revision=revisions[0])


async def write_start(store: Store, start: RunStart, *, ttl: float) -> None:
    """Replace the recorded start of a run."""
    await store.put(STARTS, start.run_id, await _start_form(store, start), ttl=ttl)


async def _start_form(store: Store, start: RunStart) -> Json:
    # messages of the session's conversation are not written again for each of its runs
    messages = messages_to_json(start.messages)
    if start.session is None:
        spoken = []
    else:
        spoken = await conversation(store, start.agent, start.session)
    shared = common(spoken, messages)
    began: Json = {"form": _FORM, "shared": shared, "messages": messages[shared:], "sent": start.sent}
    # members that came later: left out as by default, and read as such where an older version left them out
    began |= {} if start.attended is True else {"attended": start.attended}
    if start.confirm_above != "never":
        began["confirm_above"] = start.confirm_above
    for name in ("output", "meta", "on_unknown"):
        given = getattr(start, name)
        if given:
            began[name] = plain(given)
    return began


async def read_start(store: Store, record: RunRecord) -> RunStart:
    """Return the start of a run.

    Raises:
        RunError: The start, or the conversation that the run continues, is gone.
        StoreError: This version cannot read it.
    """
    return await start_from_document(store, record, await store.get(STARTS, record.run_id))


async def start_from_document(store: Store, record: RunRecord, found: Document | None) -> RunStart:
    """Return the start of a run from its document; see `read_start`."""
    if found is None:
        raise RunError("cannot continue: how it began is no longer in the store", run_id=record.run_id, reason="error")
    began = found.value
    check_form(began, f"the beginning of run {record.run_id!r}")
    if record.session is None:
        spoken = []
    else:
        spoken = await conversation(store, record.agent, record.session)
    if len(spoken) < began["shared"]:
        raise RunError(
            f"cannot continue: the conversation {record.session!r} is no longer in the store",
            run_id=record.run_id,
            reason="error",
        )
    return RunStart(
        run_id=record.run_id,
        agent=record.agent,
        messages=messages_from_json([*spoken[: began["shared"]], *began["messages"]]),
        sent=began["sent"],
        session=record.session,
        parent_id=record.parent_id,
        depth=record.depth,
        attended=began.get("attended", True),
        output=began.get("output"),
        meta=began.get("meta", {}),
        on_unknown=began.get("on_unknown"),
        confirm_above=began.get("confirm_above", "never"),
    )


async def read_batches(store: Store, names: Sequence[tuple[str, str]]) -> list[Document | None]:
    """Return documents by collection and key, a batch of them at a time."""
    found: list[Document | None] = []
    for first in range(0, len(names), _BATCH):
        found += await store.read(names[first : first + _BATCH])
    return found


async def read_record(store: Store, run_id: str) -> RunRecord | None:
    """Return the record of a run, or None.

    Raises:
        StoreError: This version cannot read it.
    """
    found = await store.get(RUNS, run_id)
    if found is None:
        return None
    return record_of(found)


async def write_record(store: Store, record: RunRecord) -> RunRecord | None:
    """Replace the record of this revision; return it with its new revision, or None if that was no longer current."""
    signal = ended_signal(record.run_id) if record.done else None
    revisions = await store.write(record_changes(record), signal=signal)
    if revisions is None:
        return None
    return replace(record, revision=revisions[0])


def record_changes(record: RunRecord, *, ttl: float | None = None, at: float | None = None) -> list[Change]:
    """Return the store changes that replace the record of this revision, the first of them, and index it.

    Args:
        record: The record.
        ttl: Seconds that it is kept; by default as its record has it.
        at: The time of the write; by default that of the change of the record.
    """
    ttl = record.keep_seconds if ttl is None else ttl
    until = (record.changed_at if at is None else at) + ttl
    value = {
        name: getattr(record, name) for name in RunRecord.__dataclass_fields__ if name not in ("usage", "revision")
    }
    value |= {"form": _FORM, "usage": usage_to_json(record.usage)}
    value = with_expiry(value, until)
    written = Put(collection=RUNS, key=record.run_id, value=value, ttl=ttl, expect=record.revision)
    tokens = (record.usage.input_tokens, record.usage.output_tokens)
    return [written, *status_entries(record, tokens, ttl, until)]


def run_topic(
    agent: str,
    store: Store,
    queue: WorkQueue,
    *,
    clock: Callable[[], float] = time.time,
    keep_seconds: float,
) -> JobTopic:
    """Return the runs of an agent as jobs of workers."""
    return JobTopic(RUN_NOTES, agent, store=store, queue=queue, clock=clock, keep_seconds=keep_seconds)


def ended_signal(run_id: str) -> str:
    """Return the name of the signal for the end of a run."""
    return f"{RUNS}/{run_id}"


def record_of(found: Document) -> RunRecord:
    """Return the record in a document.

    Raises:
        StoreError: This version cannot read it.
    """
    what = f"run {found.key!r}"
    try:
        value: Json = dict(found.value)
        check_form(value, what)
        known: Json = only_members(value, RunRecord.__dataclass_fields__)
        known["usage"] = usage_from_json(value["usage"])
        known["revision"] = found.revision
        return RunRecord(**known)
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise StoreError(f"{what} is damaged in the store: its record is not valid ({exc!r})") from None


def unreadable(found: Document, problem: StoreError) -> RunRecord:
    """Return a placeholder for a record that this version cannot read; its error says why."""
    value = object_or_empty(found.value)
    begun = float(as_number(value.get("created_at")) or 0)
    return RunRecord(
        run_id=found.key,
        agent=text_or_empty(value.get("agent")),
        prompt=text_or_empty(value.get("prompt")),
        status="failed",
        session=as_text(value.get("session")),
        parent_id=as_text(value.get("parent_id")),
        group=as_text(value.get("group")),
        error=str(problem),
        created_at=begun,
        changed_at=begun,
    )


async def children_of(store: Store, above: str) -> list[RunRecord]:
    """Return the runs below a run or another group, the oldest first."""
    # a session's name may hold a slash: keys below "a/b" are not below "a"
    below = [one async for one in iter_documents(store, CHILDREN, f"{above}/") if one.key == f"{above}/{one.value}"]
    found: list[RunRecord] = []
    for one in below:
        try:
            record = await read_record(store, one.value)
        except StoreError as exc:
            # One that another version wrote hides none of the others.
            _log.warning("a run below %s is left out: %s", above, exc)
        else:
            found += [] if record is None else [record]
    return sorted(found, key=lambda one: (one.created_at, one.run_id))


def conversation_key(agent: str, session: str) -> str:
    """Return the key of a session's conversation; the first slash ends the agent's name, whose own are escaped."""
    return f"{agent.replace('%', '%25').replace('/', '%2F')}/{session}"


async def conversations(store: Store) -> AsyncGenerator[tuple[str, str, int]]:
    """Yield the agent, the session and the number of messages of each conversation, by key."""
    async for found in iter_documents(store, CONVERSATIONS):
        agent, _, session = found.key.partition("/")
        messages = object_or_empty(found.value).get("messages")
        yield unquote(agent), session, len(cast("list[Json]", messages)) if isinstance(messages, list) else 0


async def conversation(store: Store, agent: str, session: str) -> list[Json]:
    """Return the messages of a session, as JSON."""
    found = await store.get(CONVERSATIONS, conversation_key(agent, session))
    if found is None:
        return []
    return messages_in_document(found)


def messages_in_document(found: Document) -> list[Json]:
    """Return the messages of a conversation's document, as JSON.

    Raises:
        StoreError: This version cannot read it.
    """
    check_form(found.value, f"the conversation {found.key!r}")
    return found.value["messages"]


def conversation_form(messages: list[Json]) -> Json:
    """Return the document of a conversation."""
    return {"form": _FORM, "messages": messages}


def check_form(value: JsonObject, what: str) -> None:
    """Check that this version knows the form of a document.

    Raises:
        StoreError: A newer version wrote it, or an older one whose form is not known any more, or none at all.
    """
    form: Any = value.get("form")
    if form == _FORM:
        return
    if not isinstance(form, int):
        raise StoreError(f"{what} is damaged in the store: its form is {form!r}")
    if form > _FORM:
        raise StoreError(f"{what} was written by a newer version of Toolweave (form {form}); update Toolweave")
    raise StoreError(f"{what} was written by an older version of Toolweave (form {form}), which this one cannot read")


def common(first: list[Json], second: list[Json]) -> int:
    """Return the length of the common prefix of two conversations."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


def first_text(messages: tuple[Message, ...], most: int = 300) -> str:
    """Return the beginning of the user's text, for lists of runs."""
    text = next((one.text for one in messages if isinstance(one, UserMessage)), "")
    if len(text) <= most:
        return text
    return f"{text[: most - 1]}…"
