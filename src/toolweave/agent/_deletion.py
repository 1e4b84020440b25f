"""Deleting runs and sessions from a store, with every document that is about them.

A run that has not ended is never deleted, because its process would write it again. The journal goes first and the
record last, so that a deletion which broke off can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from toolweave.agent._records import (
    CHILDREN,
    CONVERSATIONS,
    JOURNAL,
    LEASES,
    NEWEST,
    RUN_NOTES,
    RUNS,
    STARTS,
    TIME_KEY,
    TIMES,
    RunRecord,
    conversation_key,
    conversations,
    record_of,
    unreadable,
)
from toolweave.agent._session_queue import is_session_held, position_of, positions_in
from toolweave.errors import RunError, StoreError
from toolweave.jobs._kind import owner_prefix
from toolweave.jobs._lease import is_held
from toolweave.state import Delete, Document, Store, iter_documents
from toolweave.state._deletions import deletions, write_deletions


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
    await write_deletions(store, rest)
    return deleted


async def sessions_with_runs(store: Store, is_wanted: Callable[[str], bool]) -> dict[tuple[str, str], int]:
    """Return the sessions whose names are wanted, by agent and session, with the number of their runs.

    Raises:
        StoreError: The store cannot be read.
    """
    sessions: dict[tuple[str, str], int] = {}
    async for agent, session, _ in conversations(store):
        if is_wanted(session):
            sessions[agent, session] = 0
    async for found in iter_documents(store, RUNS):
        record = _record(found)
        if record.session is not None and is_wanted(record.session):
            key = record.agent, record.session
            sessions[key] = sessions.get(key, 0) + 1
    return sessions


async def _runs_in(store: Store, sessions: Collection[tuple[str, str]]) -> list[Document]:
    runs: list[Document] = []
    async for found in iter_documents(store, RUNS):
        record = _record(found)
        if record.session is not None and (record.agent, record.session) in sessions:
            runs.append(found)
    return runs


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
    for collection in (JOURNAL, CHILDREN):
        await write_deletions(store, await deletions(store, collection, f"{run_id}/"))
    changes = [
        Delete(collection=RUNS, key=run_id, expect=found.revision),
        Delete(collection=STARTS, key=run_id),
        Delete(collection=TIMES, key=TIME_KEY.format(NEWEST - round(record.created_at * 1e6), run_id)),
        Delete(collection=RUN_NOTES.submitted, key=owner_prefix(record.agent) + run_id),
        Delete(collection=RUN_NOTES.deaths, key=run_id),
        Delete(collection=RUN_NOTES.cancels, key=run_id),
    ]
    parents = {record.parent_id, record.group} - {None}
    changes += [Delete(collection=CHILDREN, key=f"{above}/{run_id}") for above in parents]
    changes += position_of(record)
    if await store.write(changes) is None:
        raise RunError("was changed while it was deleted: try again", run_id=run_id, reason="error")


def _record(found: Document) -> RunRecord:
    """Return the record of a run; of one that this version cannot read, as much as is legible."""
    try:
        return record_of(found)
    except StoreError as error:
        return unreadable(found, error)
