"""The in-memory store: bounded, and gone with the process.

The default where nothing has to outlive the process, and the reference for the other stores.
"""

from __future__ import annotations

import heapq
import json
import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from toolweave.errors import StoreError
from toolweave.state._signals import SignalListener, SignalListeners
from toolweave.state._store import Change, Document, Put, to_json


@dataclass(slots=True)
class _StoredDocument:
    text: str
    revision: int
    expires_at: float | None

    def size(self, key: str) -> int:
        return len(self.text) + len(key)


@dataclass(slots=True)
class _Collection:
    entries: dict[str, _StoredDocument] = field(default_factory=dict[str, _StoredDocument])
    keys: list[str] = field(default_factory=list[str])  # sorted


class MemoryStore:
    """A `Store` in memory; safe to use from any thread.

    A full store refuses to write: it never drops a document before its ttl.

    Args:
        most_documents: Maximum number of documents.
        most_bytes: Maximum bytes of JSON, keys included.
        clock: Returns the time in seconds, for ttl.
    """

    def __init__(
        self,
        *,
        most_documents: int = 100_000,
        most_bytes: int = 256 * 1024 * 1024,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._most_documents = most_documents
        self._most_bytes = most_bytes
        self._clock = clock
        self._collections: dict[str, _Collection] = {}
        self._expiring: list[tuple[float, int, str, str]] = []  # a heap; what was written again is skipped
        self._documents = 0
        self._bytes = 0
        self._revision = 0
        self._lock = threading.Lock()
        self._ears = SignalListeners()

    async def get(self, collection: str, key: str) -> Document | None:
        """Return a document, or None when there is none."""
        with self._lock:
            self._expire()
            entry = self._entry(collection, key)
        if entry is None:
            return None
        return _document(key, entry)

    async def put(
        self, collection: str, key: str, value: Any, *, ttl: float | None = None, expect: int | None = None
    ) -> int | None:
        """Write a document; return its new revision, or None when `expect` did not hold.

        Raises:
            StoreError: The store is full, or the value is no JSON.
        """
        revisions = await self.write([Put(collection=collection, key=key, value=value, ttl=ttl, expect=expect)])
        if revisions is None:
            return None
        return revisions[0]

    async def delete(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        """Delete a document, with `expect` only if it has this revision; return whether one was deleted."""
        with self._lock:
            self._expire()
            entry = self._entry(collection, key)
            if entry is None or (expect is not None and expect != entry.revision):
                return False
            self._remove(collection, key, entry)
            return True

    async def read(self, names: Sequence[tuple[str, str]]) -> Sequence[Document | None]:
        """Return documents, None for each missing one."""
        with self._lock:
            self._expire()
            entries = [(key, self._entry(collection, key)) for collection, key in names]
        return [None if entry is None else _document(key, entry) for key, entry in entries]

    async def write(self, changes: Sequence[Change], *, tell: str | None = None) -> Sequence[int] | None:
        """Make all of these changes or none; return the revisions, or None when an `expect` did not hold.

        Raises:
            StoreError: The store is full, or a value is no JSON.
        """
        revisions = self._written(changes)
        if revisions is not None and tell is not None:
            self._ears.ring(tell)
        return revisions

    def _written(self, changes: Sequence[Change]) -> Sequence[int] | None:
        texts = [to_json(one.collection, one.key, one.value) if isinstance(one, Put) else "" for one in changes]
        with self._lock:
            now = self._expire()
            before = [self._entry(one.collection, one.key) for one in changes]
            for one, old in zip(changes, before, strict=True):
                if one.expect is not None and one.expect != (0 if old is None else old.revision):
                    return None
            made: list[tuple[Change, _StoredDocument | None, _StoredDocument | None]] = []
            for number, (one, old) in enumerate(zip(changes, before, strict=True), 1):
                if isinstance(one, Put) and one.ttl is not None:
                    until = now + one.ttl
                else:
                    until = None
                if isinstance(one, Put):
                    new = _StoredDocument(texts[number - 1], self._revision + number, until)
                else:
                    new = None
                made.append((one, old, new))
            self._check_room(made)
            for one, old, new in made:
                self._change(one, old, new)
            return [0 if new is None else new.revision for _, _, new in made]

    async def scan(self, collection: str, *, prefix: str = "", after: str = "", limit: int = 100) -> Sequence[Document]:
        """Return documents by key, a page at a time."""
        with self._lock:
            self._expire()
            kept = self._collections.get(collection)
            if kept is None:
                return []
            start = max(bisect_left(kept.keys, prefix), bisect_right(kept.keys, after) if after else 0)
            chosen = [key for key in kept.keys[start : start + max(0, limit)] if key.startswith(prefix)]
            found = [(key, kept.entries[key]) for key in chosen]
        return [_document(key, entry) for key, entry in found]

    async def signal(self, name: str) -> None:
        """Send a signal to the listeners of this process."""
        self._ears.ring(name)

    def listening(self, name: str) -> AbstractAsyncContextManager[SignalListener]:
        """Listen to the signals of a name during the block."""
        return self._ears.listening(name, sure=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Keep the documents: they are gone with the object."""

    def __repr__(self) -> str:
        return f"<MemoryStore, {self._documents} documents, {self._bytes} bytes>"

    def _entry(self, collection: str, key: str) -> _StoredDocument | None:
        kept = self._collections.get(collection)
        if kept is None:
            return None
        return kept.entries.get(key)

    def _check_room(self, made: Sequence[tuple[Change, _StoredDocument | None, _StoredDocument | None]]) -> None:
        documents = sum((new is not None) - (old is not None) for _, old, new in made)
        grown = sum(_size(one.key, new) - _size(one.key, old) for one, old, new in made)
        full = documents > 0 and self._documents + documents > self._most_documents
        if full or (grown > 0 and self._bytes + grown > self._most_bytes):
            raise StoreError(
                f"no room for {made[0][0].key!r}: the store holds {self._documents} documents, {self._bytes} bytes",
                collection=made[0][0].collection,
            )

    def _change(self, one: Change, old: _StoredDocument | None, new: _StoredDocument | None) -> None:
        if new is not None:
            self._write(one.collection, one.key, new, new=old is None)
            self._bytes += _size(one.key, new) - _size(one.key, old)
        elif old is not None:
            self._remove(one.collection, one.key, old)

    def _write(self, collection: str, key: str, entry: _StoredDocument, *, new: bool) -> None:
        kept = self._collections.setdefault(collection, _Collection())
        kept.entries[key] = entry
        self._revision = entry.revision
        if new:
            insort(kept.keys, key)
            self._documents += 1
        if entry.expires_at is not None:
            heapq.heappush(self._expiring, (entry.expires_at, entry.revision, collection, key))

    def _remove(self, collection: str, key: str, entry: _StoredDocument) -> None:
        kept = self._collections[collection]
        del kept.entries[key]
        del kept.keys[bisect_left(kept.keys, key)]
        if not kept.entries:
            del self._collections[collection]
        self._documents -= 1
        self._bytes -= entry.size(key)

    def _expire(self) -> float:
        """Drop the expired documents and return the time."""
        now = self._clock()
        while self._expiring and self._expiring[0][0] <= now:
            _, revision, collection, key = heapq.heappop(self._expiring)
            entry = self._entry(collection, key)
            if entry is not None and entry.revision == revision:
                self._remove(collection, key, entry)
        if len(self._expiring) > 64 + 2 * self._documents:  # documents that are written again and again
            self._expiring = [one for one in self._expiring if self._is_current(one)]
            heapq.heapify(self._expiring)
        return now

    def _is_current(self, due: tuple[float, int, str, str]) -> bool:
        entry = self._entry(due[2], due[3])
        return entry is not None and entry.revision == due[1]


def _size(key: str, entry: _StoredDocument | None) -> int:
    if entry is None:
        return 0
    return entry.size(key)


def _document(key: str, entry: _StoredDocument) -> Document:
    return Document(key=key, value=json.loads(entry.text), revision=entry.revision, expires_at=entry.expires_at)
