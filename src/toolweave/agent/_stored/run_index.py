"""The indexes of runs: by time, agent, session, parent and status, each a collection of small documents.

Knows documents and no loop; `records.py` writes them together with the record of the run.

Why they agree with the records. The changes for a record depend on that record alone, and every write of a record
contains them, so no process can die between the two. An entry of an unfinished run is only a hint where to look: its
reader has the record, or the lease, decide. A run that has ended is counted by its entry, which is deleted in the write
that begins it anew.

Ended runs are counted by the hour in which their records expire. The total of an hour is one document, which each run
of that hour clears in the same write with which it ends. A reader counts the entries of a cleared hour, and stores
their total only over the revision that it read before, so no total lacks a run. Runs whose hour has begun are counted
one by one, since some of them may be gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote, unquote

from toolweave._json_types import Json, as_number, object_or_empty
from toolweave.errors import StoreError
from toolweave.jobs._kind import owner_prefix
from toolweave.state import Change, Delete, Document, Put, Store, iter_documents, iter_pages
from toolweave.state.deletions import deletions

TIMES = "run-times"
"""Run ids, the newest first."""
AGENT_TIMES = "run-agent-times"
"""Run ids below the name of their agent, the newest first."""
SESSION_TIMES = "run-session-times"
"""Run ids and agents below the name of their session, the newest first."""
CHILDREN = "run-children"
"""Run ids below the id of the parent run, or below the name of another group."""
OPEN = "run-open"
"""The status and the parent of each run that is pending or running, below the name of its agent."""
WAITING = "run-waiting"
"""The deadline and the time of the reminder of each run that waits for a person, below the name of its agent."""
ENDED = "run-ended"
"""The status and the tokens of runs that have ended, below the hour in which they expire."""
TOTALS = "run-totals"
"""The counts of the runs that expire in an hour, by hour; empty when they have to be counted."""
SESSION_NAMES = "conversation-sessions"
"""The sessions that have a conversation, by session and agent."""

_NEWEST = 10**16
"""A time in microseconds that never comes: times count down from it, so that the newest run is the first."""
_HOUR = 3600
_UNTIL = "until"
"""The member of a record's document with the time at which it expires, by the clock of its writer."""
_RENEWED_AFTER = 3600.0
"""Seconds after which entries that were written with the start of a run are written again."""


class IndexedRun(Protocol):
    """The members of a run's record that are indexed."""

    @property
    def run_id(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def session(self) -> str | None: ...
    @property
    def parent_id(self) -> str | None: ...
    @property
    def group(self) -> str | None: ...
    @property
    def created_at(self) -> float: ...
    @property
    def changed_at(self) -> float: ...
    @property
    def done(self) -> bool: ...
    @property
    def due_at(self) -> float | None: ...
    @property
    def remind_at(self) -> float | None: ...


@dataclass(slots=True)
class EndedRuns:
    """Counts of runs that have ended.

    Attributes:
        by_status: Number of runs by status.
        tokens: Input and output tokens of the runs without a parent, whose usage contains that of their children.
    """

    by_status: Counter[str] = field(default_factory=Counter[str])
    tokens: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, by_status: Mapping[str, int], tokens: Sequence[int]) -> None:
        self.by_status.update(by_status)
        self.tokens = [one + other for one, other in zip(self.tokens, tokens, strict=True)]


@dataclass(frozen=True, slots=True)
class OpenRun:
    """The entry of a run that is pending or running."""

    run_id: str
    status: str
    parent_id: str | None


def start_entries(run: IndexedRun, ttl: float) -> list[Put]:
    """Return the changes that index a run by time, agent, session and parent."""
    at = f"{_NEWEST - round(run.created_at * 1e6):016}/{run.run_id}"
    entries = [
        Put(collection=TIMES, key=at, value=run.run_id, ttl=ttl),
        Put(collection=AGENT_TIMES, key=owner_prefix(run.agent) + at, value=run.run_id, ttl=ttl),
    ]
    if run.session is not None:
        value = [run.run_id, run.agent]
        entries.append(Put(collection=SESSION_TIMES, key=owner_prefix(run.session) + at, value=value, ttl=ttl))
    groups = {run.parent_id, run.group} - {None}
    entries += [Put(collection=CHILDREN, key=f"{above}/{run.run_id}", value=run.run_id, ttl=ttl) for above in groups]
    return entries


def status_entries(run: IndexedRun, tokens: Sequence[int], ttl: float, until: float) -> list[Change]:
    """Return the changes that index a run by its status; every write of its record contains them.

    Args:
        run: The record of the run.
        tokens: Its input and output tokens.
        ttl: Seconds that they are kept.
        until: The time at which they expire.
    """
    key = owner_prefix(run.agent) + run.run_id
    changes: list[Change] = []
    if run.status == "waiting":
        changes.append(Put(collection=WAITING, key=key, value=[run.due_at, run.remind_at], ttl=ttl))
    else:
        changes.append(Delete(collection=WAITING, key=key))
    if run.status in ("pending", "running"):
        changes.append(Put(collection=OPEN, key=key, value=[run.status, run.parent_id], ttl=ttl))
    else:
        changes.append(Delete(collection=OPEN, key=key))
    if run.done:
        hour = _hour(until)
        used = [0, 0] if run.parent_id is not None else list(tokens)
        changes.append(Put(collection=ENDED, key=f"{hour}/{run.run_id}", value=[run.status, *used], ttl=ttl))
        # It outlives the entries of its hour, whichever of them is the last.
        changes.append(Put(collection=TOTALS, key=hour, value={}, ttl=ttl + 2 * _HOUR))
    if run.changed_at - run.created_at > min(_RENEWED_AFTER, ttl / 100):
        # Other runs expire soon after their first entries.
        changes += start_entries(run, ttl)
    return changes


def with_expiry(value: Json, until: float) -> Json:
    """Return the document of a record with the time at which it expires, which also marks it as indexed."""
    return {**value, _UNTIL: until}


def is_indexed(record: Document) -> bool:
    """Whether the document of a record was written together with its index."""
    return _expiry_in(record) is not None


def deletions_of(run: IndexedRun, record: Document, now: float) -> list[Change]:
    """Return the changes that remove a run from every index."""
    key = owner_prefix(run.agent) + run.run_id
    changes: list[Change] = [Delete(collection=one.collection, key=one.key) for one in start_entries(run, 0)]
    changes += [Delete(collection=OPEN, key=key), Delete(collection=WAITING, key=key)]
    return [*changes, *ended_deletions(record, now)]


def ended_deletions(record: Document, now: float) -> list[Change]:
    """Return the changes that take an ended run out of the counts: it is deleted, or begins again."""
    until = _expiry_in(record)
    if until is None:
        return []
    hour = _hour(until)
    return [
        Delete(collection=ENDED, key=f"{hour}/{record.key}"),
        Put(collection=TOTALS, key=hour, value={}, ttl=max(0.0, until - now) + 2 * _HOUR),
    ]


def session_key(agent: str, session: str) -> str:
    """Return the key of a session in `SESSION_NAMES`."""
    return owner_prefix(session) + quote(agent, safe="")


async def recent_pages(store: Store, agent: str | None, session: str | None) -> AsyncGenerator[Sequence[str]]:
    """Yield the ids of runs in pages, the newest first; of an agent, a session, or both."""
    if session is not None:
        async for page in iter_pages(store, SESSION_TIMES, owner_prefix(session)):
            yield [found.value[0] for found in page if agent in (None, found.value[1])]
    elif agent is not None:
        async for page in iter_pages(store, AGENT_TIMES, owner_prefix(agent)):
            yield [found.value for found in page]
    else:
        async for page in iter_pages(store, TIMES):
            yield [found.value for found in page]


async def waiting_ids(store: Store, agent: str | None = None) -> list[str]:
    """Return the ids of the runs that wait for a person, of an agent or of all."""
    return [run_id_of(found) async for found in iter_documents(store, WAITING, agent_prefix(agent))]


async def open_runs(store: Store, agent: str | None = None) -> list[OpenRun]:
    """Return the runs that are pending or running, of an agent or of all."""
    return [OpenRun(run_id_of(found), *found.value) async for found in iter_documents(store, OPEN, agent_prefix(agent))]


async def sessions_named(store: Store, name: str) -> list[tuple[str, str, str | None]]:
    """Return the agent, the session and the run of each entry of a user's sessions; no run for a conversation.

    A session is the user's if it is named `name`, or if its name begins with `name/` or `name:`.
    """
    found: list[tuple[str, str, str | None]] = []
    # Quoting keeps the beginning of a name, and its end is a slash.
    for prefix in (owner_prefix(name), quote(f"{name}/", safe=""), quote(f"{name}:", safe="")):
        async for entry in iter_documents(store, SESSION_NAMES, prefix):
            session, _, agent = entry.key.partition("/")
            found.append((unquote(agent), unquote(session), None))
        async for entry in iter_documents(store, SESSION_TIMES, prefix):
            run_id, agent = entry.value
            found.append((agent, unquote(entry.key.partition("/")[0]), run_id))
    return found


async def session_entries(store: Store, agent: str, session: str) -> list[Delete]:
    """Return the changes that remove a session from the indexes, with its runs that are gone."""
    name = Delete(collection=SESSION_NAMES, key=session_key(agent, session))
    runs = await deletions(store, SESSION_TIMES, owner_prefix(session), is_wanted=lambda found: found.value[1] == agent)
    return [name, *runs]


async def count_ended(store: Store, now: float) -> EndedRuns:
    """Count the runs that have ended, reading the entries of those hours alone whose total is not known."""
    counted = EndedRuns()
    # An hour more, for clocks that differ from the store's.
    begun = _hour(now + _HOUR)
    async for page in iter_pages(store, TOTALS):
        new: list[Put] = []
        for total in page:
            known = object_or_empty(total.value)
            if total.key > begun and known:
                counted.add(known["by_status"], known["tokens"])
                continue
            ended = EndedRuns()
            async for found in iter_documents(store, ENDED, f"{total.key}/"):
                status, *tokens = found.value
                ended.add({status: 1}, tokens)
            counted.add(ended.by_status, ended.tokens)
            if total.key > begun:
                new.append(_kept_total(total, ended, now))
        await _keep(store, new)
    return counted


def _kept_total(total: Document, ended: EndedRuns, now: float) -> Put:
    value = {"by_status": dict(ended.by_status), "tokens": ended.tokens}
    ttl = _HOUR * (int(total.key) + 3) - now
    return Put(collection=TOTALS, key=total.key, value=value, ttl=ttl, expect=total.revision)


async def _keep(store: Store, totals: Sequence[Put]) -> None:
    """Store totals, except of hours to which a run was added meanwhile; a store may be read-only."""
    with suppress(StoreError):
        if not totals or await store.write(totals) is not None:
            return
        for one in totals:
            await store.write([one])


def _hour(at: float) -> str:
    return f"{int(at // _HOUR):08}"


def _expiry_in(record: Document) -> float | None:
    return as_number(object_or_empty(record.value).get(_UNTIL))


def agent_prefix(agent: str | None) -> str:
    """Return how the keys of the runs of an agent begin; those of all agents have no prefix."""
    if agent is None:
        return ""
    return owner_prefix(agent)


def run_id_of(entry: Document) -> str:
    """Return the id of the run of an entry below the name of its agent."""
    return entry.key.partition("/")[2]
