"""What of a run stands in a store, and where: its record, how it began, and the indexes by time and by parent.

Knows documents and no loop: the journal writes here, the views of `status.py` and `tree.py` read.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, cast

from toolweave.agent.events import RunResult
from toolweave.agent.journal import RunStart
from toolweave.errors import RunError, StoreError
from toolweave.models.base import Usage
from toolweave.models.journal_form import (
    messages_from_json,
    messages_to_json,
    plain,
    usage_from_json,
    usage_to_json,
)
from toolweave.models.messages import Message, UserMessage
from toolweave.state import Document, Store

__all__ = [
    "APPROVALS",
    "CHILDREN",
    "CONVERSATIONS",
    "JOURNAL",
    "LEASES",
    "RUNS",
    "STARTS",
    "TIMES",
    "RecordedStatus",
    "RunRecord",
    "children_of",
    "common",
    "conversation",
    "conversation_form",
    "conversation_key",
    "create",
    "every",
    "first_text",
    "read_record",
    "read_start",
    "record_of",
    "spoken_in",
    "write_record",
    "write_start",
]

RUNS = "runs"
"""A `RunRecord` by run id."""
STARTS = "run-starts"
"""How a run began, by run id: the only document of it that may be large."""
TIMES = "run-times"
"""Run ids, the newest first."""
CHILDREN = "run-children"
"""Run ids below the id of the run whose tool started them, or below the name of another group."""
JOURNAL = "run-journal"
"""Finished turns and calls, below the run's id."""
LEASES = "run-leases"
"""Who is running a run now, by run id; gone when it runs nowhere."""
CONVERSATIONS = "conversations"
"""What was said, by agent and session."""
APPROVALS = "approvals"
"""Digests of the tools that an agent was allowed to use for good, below its name."""

_FORM = 1
_PAGE = 100
_NEWEST = 10**16

RecordedStatus: TypeAlias = Literal["pending", "running", "completed", "stopped", "cancelled", "failed"]
"""Where a run was when its record was written; one that is `"running"` and that nobody runs was interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run as the store knows it.

    Attributes:
        session: The conversation that it goes on with, or None.
        parent_id: The run whose tool started it, or None.
        depth: How many runs it is nested in.
        group: What it was spawned under, or None when it was not spawned.
        prompt: The beginning of what was sent.
        created_at: In seconds of the clock of whoever created it.
        changed_at: When the record was last written.
        attempts: How often it was begun; more than once after an interruption.
        text: What the model said last, once it has ended.
        stop_reason: Why it ended, or None.
        error: What made it fail, or None.
        revision: That of the document.
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
    revision: int = 0

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self.status not in ("pending", "running")

    def ended(self, result: RunResult, now: float) -> RunRecord:
        """Return the record of a run that came to this."""
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
        return model_dump(mode="json") if callable(model_dump) else str(value)

    return None if output is None else plain(msgspec.to_builtins(output, enc_hook=dump, str_keys=True))


async def create(
    store: Store, start: RunStart, *, status: RecordedStatus, now: float, ttl: float, group: str | None = None
) -> RunRecord | None:
    """Write a new run, found by its parent and by its `group`; return None when there is one of this id.

    The record comes last: a run whose process dies here does not exist.
    """
    await write_start(store, start, ttl=ttl)
    await store.put(TIMES, f"{_NEWEST - round(now * 1e6):016}/{start.run_id}", start.run_id, ttl=ttl)
    for above in {start.parent_id, group} - {None}:
        await store.put(CHILDREN, f"{above}/{start.run_id}", start.run_id, ttl=ttl)
    record = RunRecord(
        run_id=start.run_id,
        agent=start.agent,
        status=status,
        session=start.session,
        parent_id=start.parent_id,
        depth=start.depth,
        group=group,
        prompt=first_text(start.messages[len(start.messages) - start.sent :]),
        created_at=now,
        changed_at=now,
        attempts=1 if status == "running" else 0,
    )
    return await write_record(store, record, ttl=ttl)


async def write_start(store: Store, start: RunStart, *, ttl: float) -> None:
    """Write how a run begins, in the place of how it was to begin."""
    # what stands in the session's conversation is not written again for each of its runs
    messages = messages_to_json(start.messages)
    spoken = [] if start.session is None else await conversation(store, start.agent, start.session)
    shared = common(spoken, messages)
    began: dict[str, Any] = {"form": _FORM, "shared": shared, "messages": messages[shared:], "sent": start.sent}
    # members that came later: left out as by default, and read as such where an older version left them out
    began |= {} if start.attended else {"attended": False}
    began |= {name: plain(given) for name in ("output", "meta") if (given := getattr(start, name))}
    await store.put(STARTS, start.run_id, began, ttl=ttl)


async def read_start(store: Store, record: RunRecord) -> RunStart:
    """Return how a run began.

    Raises:
        RunError: That is gone, or the conversation that it went on with is.
        StoreError: This version cannot read it.
    """
    found = await store.get(STARTS, record.run_id)
    if found is None:
        raise RunError("cannot go on: how it began is no longer in the store", run_id=record.run_id, reason="error")
    began = found.value
    check_form(began, f"the beginning of run {record.run_id!r}")
    spoken = [] if record.session is None else await conversation(store, record.agent, record.session)
    if len(spoken) < began["shared"]:
        raise RunError(
            f"cannot go on: the conversation {record.session!r} is no longer in the store",
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
    )


async def read_record(store: Store, run_id: str) -> RunRecord | None:
    """Return the record of a run, or None.

    Raises:
        StoreError: This version cannot read it.
    """
    found = await store.get(RUNS, run_id)
    return None if found is None else record_of(found)


async def write_record(store: Store, record: RunRecord, *, ttl: float) -> RunRecord | None:
    """Write a record in the place of the one of its revision; return it with its new one, or None if that is gone."""
    value = {
        name: getattr(record, name) for name in RunRecord.__dataclass_fields__ if name not in ("usage", "revision")
    }
    value |= {"form": _FORM, "usage": usage_to_json(record.usage)}
    revision = await store.put(RUNS, record.run_id, value, ttl=ttl, expect=record.revision)
    return None if revision is None else replace(record, revision=revision)


def record_of(found: Document) -> RunRecord:
    """Return the record that a document is.

    Raises:
        StoreError: This version cannot read it.
    """
    value: dict[str, Any] = found.value
    check_form(value, f"run {found.key!r}")
    known: dict[str, Any] = {name: value[name] for name in RunRecord.__dataclass_fields__ if name in value}
    known["usage"] = usage_from_json(value["usage"])
    known["revision"] = found.revision
    return RunRecord(**known)


async def children_of(store: Store, above: str) -> list[RunRecord]:
    """Return the runs below a run or another group, the oldest first."""
    # a session's name may hold a slash: what is below "a/b" is not below "a"
    below = [one async for one in every(store, CHILDREN, f"{above}/") if one.key == f"{above}/{one.value}"]
    found = [await read_record(store, one.value) for one in below]
    return sorted((one for one in found if one is not None), key=lambda one: (one.created_at, one.run_id))


def conversation_key(agent: str, session: str) -> str:
    """Return the key of a session's conversation; the first slash ends the agent's name, whatever that holds."""
    return f"{agent.replace('%', '%25').replace('/', '%2F')}/{session}"


async def conversation(store: Store, agent: str, session: str) -> list[dict[str, Any]]:
    """Return what was said in a session, as JSON."""
    found = await store.get(CONVERSATIONS, conversation_key(agent, session))
    return [] if found is None else spoken_in(found)


def spoken_in(found: Document) -> list[dict[str, Any]]:
    """Return the messages of a conversation's document, as JSON.

    Raises:
        StoreError: This version cannot read it.
    """
    check_form(found.value, f"the conversation {found.key!r}")
    return found.value["messages"]


def conversation_form(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the document of a conversation."""
    return {"form": _FORM, "messages": messages}


def check_form(value: Mapping[str, Any], what: str) -> None:
    """Check that this version knows the form of a document.

    Raises:
        StoreError: A newer version wrote it.
    """
    if value.get("form") != _FORM:
        raise StoreError(f"{what} was written by a newer version of Toolweave; update Toolweave")


def common(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> int:
    """Return how many messages two conversations begin with alike."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


def first_text(messages: tuple[Message, ...], most: int = 300) -> str:
    """Return the beginning of what a user says, for lists of runs."""
    text = next((one.text for one in messages if isinstance(one, UserMessage)), "")
    return text if len(text) <= most else f"{text[: most - 1]}…"


async def every(store: Store, collection: str, prefix: str = "") -> AsyncGenerator[Document, None]:
    """Yield all documents of a collection whose keys have this prefix."""
    after = ""
    while True:
        page = await store.scan(collection, prefix=prefix, after=after, limit=_PAGE)
        for found in page:
            yield found
        if len(page) < _PAGE:
            return
        after = page[-1].key
