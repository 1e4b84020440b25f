"""Deleting runs and sessions from a store, with every document that is about them.

A run that has not ended is never deleted, because its process would write it again. The journal goes first and the
record last, so that a deletion which broke off can be repeated.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from toolweave.agent._stored.deadlines import NOTICES
from toolweave.agent._stored.index_build import ensure_index
from toolweave.agent._stored.records import (
    CONVERSATIONS,
    JOURNAL,
    LEASES,
    RUN_NOTES,
    RUNS,
    STARTS,
    RunRecord,
    conversation_key,
    read_batches,
    record_of,
    unreadable,
)
from toolweave.agent._stored.run_index import CHILDREN, deletions_of, recent_pages, session_entries, sessions_named
from toolweave.agent._stored.session_queue import is_session_held, position_of, positions_in
from toolweave.errors import RunError, StoreError
from toolweave.jobs._kind import owner_prefix
from toolweave.jobs._lease import is_held
from toolweave.state import Change, Delete, Document, Store, iter_documents
from toolweave.state.deletions import deletions, write_deletions


async def delete_run(store: Store, run_id: str) -> int:
    """Delete a run and its descendants; return the number of deleted runs.

    Raises:
        RunError: One of them has not ended.
        StoreError: The store cannot be read or written.
    """
    found = await store.get(RUNS, run_id)
    if found is None:
        return 0
    return await _delete_all(store, [found])


async def delete_session(store: Store, agent: str, session: str) -> int:
    """Delete the conversation of a session and its runs with their descendants; return the number of deleted runs.

    Raises:
        RunError: One of the runs has not ended.
        StoreError: The store cannot be read or written.
    """
    return await delete_sessions(store, {(agent, session)})


async def delete_sessions(store: Store, sessions: Collection[tuple[str, str]]) -> int:
    """Delete the conversations of sessions and their runs, by agent and session; return the number of deleted runs.

    Nothing is deleted if one of the runs has not ended.

    Raises:
        RunError: One of the runs has not ended.
        StoreError: The store cannot be read or written.
    """
    for agent, session in sessions:
        if await is_session_held(store, agent, session):
            raise RunError(f"cannot be deleted: a run continues session {session!r} now", run_id="", reason="error")
    deleted = await _delete_all(store, await _runs_in(store, sessions))
    rest: list[Delete] = []
    for agent, session in sessions:
        rest.append(Delete(collection=CONVERSATIONS, key=conversation_key(agent, session)))
        rest += await positions_in(store, agent, session)
        rest += await session_entries(store, agent, session)
    await write_deletions(store, rest)
    return deleted


async def sessions_with_runs(store: Store, names: Collection[str]) -> dict[tuple[str, str], int]:
    """Return the sessions of users, by agent and session, with the number of their runs.

    A session is a user's if its name is one of these names, or begins with one and a slash or a colon.

    Raises:
        StoreError: The store cannot be read.
    """
    await ensure_index(store, time.time())
    runs: dict[tuple[str, str], set[str]] = {}
    for name in names:
        for agent, session, run_id in await sessions_named(store, name):
            known = runs.setdefault((agent, session), set())
            if run_id is not None:
                known.add(run_id)
    return {key: len(await _existing(store, sorted(found))) for key, found in runs.items()}


async def _runs_in(store: Store, sessions: Collection[tuple[str, str]]) -> list[Document]:
    runs: list[Document] = []
    await ensure_index(store, time.time())
    for agent, session in sessions:
        async for page in recent_pages(store, agent, session):
            runs += await _existing(store, page)
    return runs


async def _existing(store: Store, run_ids: Sequence[str]) -> list[Document]:
    """Return the records that exist of runs."""
    found = await read_batches(store, [(RUNS, run_id) for run_id in run_ids])
    return [one for one in found if one is not None]


async def _delete_all(store: Store, tops: Sequence[Document]) -> int:
    """Delete runs with their descendants, the lowest first."""
    runs = await _with_descendants(store, tops)
    for found in runs:
        await _check_ended(store, found)
    for found in reversed(runs):
        await _delete(store, found)
    return len(runs)


async def _with_descendants(store: Store, tops: Sequence[Document]) -> list[Document]:
    """Return runs and all runs below them, each once and after the one above it."""
    runs = {found.key: found for found in tops}
    left = list(tops)
    while left:
        above = left.pop(0)
        async for child in iter_documents(store, CHILDREN, f"{above.key}/"):
            run_id = child.key.removeprefix(f"{above.key}/")
            found = await store.get(RUNS, run_id)
            if found is not None and run_id not in runs:
                runs[run_id] = found
                left.append(found)
    return list(runs.values())


async def _check_ended(store: Store, found: Document) -> None:
    if not _record(found).done or await is_held(store, LEASES, found.key):
        raise RunError("has not ended: cancel it first", run_id=found.key, reason="error")


async def _delete(store: Store, found: Document) -> None:
    """Delete one run.

    Raises:
        RunError: It was changed meanwhile.
    """
    record = _record(found)
    run_id = record.run_id
    for collection in (JOURNAL, CHILDREN, NOTICES):
        await write_deletions(store, await deletions(store, collection, f"{run_id}/"))
    changes: list[Change] = [
        Delete(collection=RUNS, key=run_id, expect=found.revision),
        Delete(collection=STARTS, key=run_id),
        Delete(collection=RUN_NOTES.submitted, key=owner_prefix(record.agent) + run_id),
        Delete(collection=RUN_NOTES.deaths, key=run_id),
        Delete(collection=RUN_NOTES.cancels, key=run_id),
    ]
    changes += deletions_of(record, found, time.time())
    changes += position_of(record)
    if await store.write(changes) is None:
        raise RunError("was changed while it was deleted: try again", run_id=run_id, reason="error")


def _record(found: Document) -> RunRecord:
    """Return the record of a run; of one that this version cannot read, as much as is legible."""
    try:
        return record_of(found)
    except StoreError as error:
        return unreadable(found, error)
