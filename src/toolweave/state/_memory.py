"""The in-memory store: bounded, and gone with the process.

The default where nothing has to outlive the process, and the reference for the other stores.

One lock guards all documents, because threads share a store. It is held for no more than dictionary operations, so a
task of an event loop may wait for it. Every method drops the expired documents first: nothing else does, and no timer
is needed.
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

from anyio.lowlevel import checkpoint

from toolweave._option_checks import check_kind, check_number
from toolweave.errors import StoreError
from toolweave.state._signals import SignalListener, SignalListeners
from toolweave.state.checks import CLOCK
from toolweave.state.store import Change, Document, Put, contains, to_json

_SEARCHED = 1_000
"""Documents that one search looks at."""


@dataclass(slots=True)
class _StoredDocument:
    text: str
    revision: int
    expires_at: float | None

    def size(self, key: str) -> int:
        return len(self.text) + len(key)


@dataclass(slots=True)
class _Replacement:
    """A change that was checked: the document before and after it, each None if there is no document."""

    collection: str
    key: str
    old: _StoredDocument | None
    new: _StoredDocument | None

    @property
    def growth(self) -> int:
        """Bytes by which the store grows."""
        return _size(self.key, self.new) - _size(self.key, self.old)

    @property
    def revision(self) -> int:
        """The new revision; 0 for a deleted document."""
        if self.new is None:
            return 0
        return self.new.revision


@dataclass(slots=True)
class _Collection:
    entries: dict[str, _StoredDocument] = field(default_factory=dict[str, _StoredDocument])
    keys: list[str] = field(default_factory=list[str])  # sorted


class MemoryStore:
    """A `Store` in memory; safe to use from any thread.

    A full store refuses to write: it never drops a document before its ttl.

    Args:
        max_documents: Maximum number of documents.
        max_bytes: Maximum bytes of JSON, keys included.
        clock: Returns the time in seconds, for ttl.

    Raises:
        TypeError: An option has another type.
        ValueError: A number is negative or not finite.
    """

    def __init__(
        self,
        *,
        max_documents: int = 100_000,
        max_bytes: int = 256 * 1024 * 1024,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_number("MemoryStore.max_documents", max_documents, noun="a number of documents")
        check_number("MemoryStore.max_bytes", max_bytes, noun="a number of bytes")
        check_kind("MemoryStore.clock", clock, CLOCK)
        self._max_documents = max_documents
        self._max_bytes = max_bytes
        self._clock = clock
        self._collections: dict[str, _Collection] = {}
        # a heap; replaced documents are skipped
        self._expiring: list[tuple[float, int, str, str]] = []
        self._documents = 0
        self._bytes = 0
        self._revision = 0
        self._lock = threading.Lock()
        self._listeners = SignalListeners()

    async def get(self, collection: str, key: str) -> Document | None:
        """Return a document, or None if it does not exist."""
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
            StoreError: The store is full, or the value is not JSON.
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
            if entry is None or expect not in (None, entry.revision):
                return False
            self._remove(collection, key, entry)
            return True

    async def read(self, names: Sequence[tuple[str, str]]) -> Sequence[Document | None]:
        """Return documents, None for each missing one."""
        with self._lock:
            self._expire()
            entries = [self._entry(collection, key) for collection, key in names]
        found: list[Document | None] = []
        for (_, key), entry in zip(names, entries, strict=True):
            found.append(None if entry is None else _document(key, entry))
        return found

    async def write(self, changes: Sequence[Change], *, signal: str | None = None) -> Sequence[int] | None:
        """Make all of these changes or none; return the revisions, or None when an `expect` did not hold.

        Raises:
            StoreError: The store is full, or a value is not JSON.
        """
        revisions = self._written(changes)
        if revisions is not None and signal is not None:
            self._listeners.notify(signal)
        return revisions

    def _written(self, changes: Sequence[Change]) -> Sequence[int] | None:
        # Before the lock, and before anything is changed: a value that is not JSON must not leave half of a write.
        texts = list(map(_text, changes))
        with self._lock:
            now = self._expire()
            replacements: list[_Replacement] = []
            for number, (change, text) in enumerate(zip(changes, texts, strict=True), 1):
                old = self._entry(change.collection, change.key)
                # All expectations are checked before anything is replaced: nothing has to be undone.
                if not _is_expected(change, old):
                    return None
                new = None
                if isinstance(change, Put):
                    expires_at = None if change.ttl is None else now + change.ttl
                    new = _StoredDocument(text, self._revision + number, expires_at)
                replacements.append(_Replacement(change.collection, change.key, old, new))
            self._check_room(replacements)
            for replacement in replacements:
                self._replace(replacement)
            return [replacement.revision for replacement in replacements]

    async def scan(self, collection: str, *, prefix: str = "", after: str = "", limit: int = 100) -> Sequence[Document]:
        """Return documents by key, a page at a time."""
        with self._lock:
            self._expire()
            kept = self._collections.get(collection)
            if kept is None:
                return []
            start = bisect_left(kept.keys, prefix)
            if after:
                start = max(start, bisect_right(kept.keys, after))
            entries: list[tuple[str, _StoredDocument]] = []
            for key in kept.keys[start : start + max(0, limit)]:
                if not key.startswith(prefix):
                    break  # the keys are sorted
                entries.append((key, kept.entries[key]))
        # The values are decoded without the lock: a stored document is never changed, only replaced.
        return [_document(key, entry) for key, entry in entries]

    async def search(
        self, collection: str, texts: Sequence[str], *, after: str = ""
    ) -> tuple[Sequence[Document], str | None]:
        """Return the next documents that contain one of these texts, and the key after which to continue."""
        with self._lock:
            self._expire()
            kept = self._collections.get(collection)
            if kept is None:
                return [], None
            start = 0
            if after:
                start = bisect_right(kept.keys, after)
            keys = kept.keys[start : start + _SEARCHED]
            entries = list(map(kept.entries.__getitem__, keys))
        await checkpoint()  # a search of many pages lets other tasks run between two of them
        found: list[Document] = []
        for key, entry in zip(keys, entries, strict=True):
            if contains(texts, key, entry.text):
                found.append(_document(key, entry))
        if len(keys) < _SEARCHED:
            return found, None
        return found, keys[-1]

    async def collections(self) -> Sequence[str]:
        """Return the names of the collections that have documents, sorted."""
        with self._lock:
            self._expire()
            return sorted(self._collections)

    async def signal(self, name: str) -> None:
        """Send a signal to the listeners of this process."""
        self._listeners.notify(name)

    def listening(self, name: str) -> AbstractAsyncContextManager[SignalListener]:
        """Listen to the signals of a name during the block."""
        return self._listeners.listening(name, sure=True)

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

    def _check_room(self, replacements: Sequence[_Replacement]) -> None:
        documents = 0
        size = 0
        for replacement in replacements:
            documents += (replacement.new is not None) - (replacement.old is not None)
            size += replacement.growth
        # Only a write that grows the store is refused: deleting and shrinking has to be possible in a full one.
        has_too_many = documents > 0 and self._documents + documents > self._max_documents
        is_too_large = size > 0 and self._bytes + size > self._max_bytes
        if has_too_many or is_too_large:
            first = replacements[0]
            raise StoreError(
                f"no room for {first.key!r}: the store holds {self._documents} documents, {self._bytes} bytes",
                collection=first.collection,
            )

    def _replace(self, replacement: _Replacement) -> None:
        collection = replacement.collection
        old = replacement.old
        if replacement.new is not None:
            self._write(collection, replacement.key, replacement.new, is_new=old is None)
            self._bytes += replacement.growth
        elif old is not None:
            self._remove(collection, replacement.key, old)

    def _write(self, collection: str, key: str, entry: _StoredDocument, *, is_new: bool) -> None:
        kept = self._collections.setdefault(collection, _Collection())
        kept.entries[key] = entry
        self._revision = entry.revision
        if is_new:
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
            # An entry of the heap may be of an earlier write of the key. The revision shows that this is the one that
            # expires.
            if entry is not None and entry.revision == revision:
                self._remove(collection, key, entry)
        # documents that are written again and again
        if len(self._expiring) > 64 + 2 * self._documents:
            self._expiring = [one for one in self._expiring if self._is_current(one)]
            heapq.heapify(self._expiring)
        return now

    def _is_current(self, due: tuple[float, int, str, str]) -> bool:
        entry = self._entry(due[2], due[3])
        return entry is not None and entry.revision == due[1]


def _text(change: Change) -> str:
    if isinstance(change, Put):
        return to_json(change.collection, change.key, change.value)
    return ""


def _is_expected(change: Change, old: _StoredDocument | None) -> bool:
    if change.expect is None:
        return True
    revision = 0 if old is None else old.revision
    return change.expect == revision


def _size(key: str, entry: _StoredDocument | None) -> int:
    if entry is None:
        return 0
    return entry.size(key)


def _document(key: str, entry: _StoredDocument) -> Document:
    # Decoded for each reader: two of them never share a value that one of them may change.
    return Document(key=key, value=json.loads(entry.text), revision=entry.revision, expires_at=entry.expires_at)
