"""Builds the indexes of runs in a store whose records were written before there were any.

It is done once for a store, by the first who looks at its runs; a document says that it is done. Several may do it at
the same time, since all write the same. Records that no process may be about to replace are written again together
with their entries. The others get their entries alone, and are read once more: one that has changed meanwhile has
written its own.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from toolweave.agent._stored.records import RUNS, conversations, record_changes, record_of
from toolweave.agent._stored.run_index import SESSION_NAMES, is_indexed, session_key, start_entries
from toolweave.errors import StoreError
from toolweave.state import Document, Store, iter_pages

_log = logging.getLogger("toolweave.agent")

_STATE = "run-index"
"""The version of the indexes that a store has."""
_KEY = "version"
_VERSION = 1


async def ensure_index(store: Store, now: float) -> None:
    """Build the indexes of the runs of a store, unless it has them.

    Raises:
        StoreError: The store cannot be read or written.
    """
    found = await store.get(_STATE, _KEY)
    if found is not None and found.value == _VERSION:
        return
    async for page in iter_pages(store, RUNS):
        left: Sequence[Document] = [one for one in page if not is_indexed(one)]
        while left:
            left = await _indexed(store, left, now)
    # The version is written last: a process that dies before repeats the whole, which does nothing twice, as an entry
    # is the same document however often it is written.
    async for agent, session, _ in conversations(store):
        await store.put(SESSION_NAMES, session_key(agent, session), True)
    with suppress(StoreError):  # of a store that can only be read, and has its indexes
        await store.put(_STATE, _KEY, _VERSION)


async def _indexed(store: Store, records: Sequence[Document], now: float) -> Sequence[Document]:
    """Write the entries of records; return those that have changed meanwhile and lack theirs."""
    for found in records:
        try:
            record = record_of(found)
        except StoreError as exc:
            _log.warning("run %s is not indexed: %s", found.key, exc)
            continue
        ttl = max(0.0, (found.expires_at or now) - now)
        written, *entries = record_changes(record, ttl=ttl, at=now)
        if record.status in ("pending", "running"):
            # Without the record, which its process writes at any moment: its next write brings its entries.
            # The entries here are hints until then, and their reader looks at the record.
            await store.write([*entries, *start_entries(record, ttl)])
        else:
            # With the record and over its revision: a run that begins again meanwhile must not be counted as ended.
            await store.write([written, *entries, *start_entries(record, ttl)])
    again = await store.read([(RUNS, one.key) for one in records])
    revisions = {one.key: one.revision for one in records}
    changed = [one for one in again if one is not None and one.revision != revisions[one.key]]
    return [one for one in changed if not is_indexed(one)]
