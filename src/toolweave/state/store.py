"""The port of this package: a small store of JSON documents, the same for memory and for a database."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

from toolweave.errors import StoreError

__all__ = [
    "BoundedStore",
    "Change",
    "CompactableStore",
    "Delete",
    "Document",
    "ListableStore",
    "MovingStore",
    "Put",
    "SearchableStore",
    "Store",
    "contains",
    "iter_containing",
    "iter_documents",
    "iter_pages",
    "to_json",
]

_PAGE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document, as it was when it was read; changing its value does not change the store.

    Attributes:
        key: Its name, unique in its collection.
        value: Any JSON value.
        revision: Grows with every write to the store, and is never used twice.
        expires_at: Its expiry, in seconds of the store's clock; None for never.
    """

    key: str
    value: Any
    revision: int
    expires_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """A document to write; as with `Store.put`."""

    collection: str
    key: str
    value: Any
    ttl: float | None = None
    expect: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """A document to delete if it exists; with `expect` it must exist and have this revision."""

    collection: str
    key: str
    expect: int | None = None


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))

Change: TypeAlias = Put | Delete
"""One change to a document."""


@runtime_checkable
class Store(Protocol):
    """Documents by collection and key.

    Every write is atomic and seen by every later read. An expired document counts as deleted. Any task may use an
    open store; entering is re-entrant by count.
    """

    async def get(self, collection: str, key: str) -> Document | None:
        """Return a document, or None if it does not exist."""
        ...

    async def put(
        self, collection: str, key: str, value: Any, *, ttl: float | None = None, expect: int | None = None
    ) -> int | None:
        """Write a document, replacing one of its key.

        Args:
            collection: Its collection, which need not be made first.
            key: Its name in the collection.
            value: Any JSON value; NaN is not one.
            ttl: Seconds until it expires; None for never, also when it replaces one that would expire.
            expect: Write only if the document has this revision; 0 if it must not exist.

        Returns:
            Its new revision, or None when `expect` did not hold and nothing was written.

        Raises:
            StoreError: The store is full, or the value is not JSON.
        """
        ...

    async def delete(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        """Delete a document, with `expect` only if it has this revision; return whether one was deleted."""
        ...

    async def read(self, names: Sequence[tuple[str, str]]) -> Sequence[Document | None]:
        """Return the documents of these collections and keys, atomically; None for each missing one."""
        ...

    async def write(self, changes: Sequence[Change], *, signal: str | None = None) -> Sequence[int] | None:
        """Make all of these changes, each to another document, or no change at all; others see them whole.

        Args:
            changes: To documents, by collection and key.
            signal: The signal to send when they are made, where the store passes on signals.

        Returns:
            The new revisions, 0 for a deleted document; None when an `expect` did not hold and nothing was written.

        Raises:
            StoreError: The store is full, or a value is not JSON.
        """
        ...

    async def scan(self, collection: str, *, prefix: str = "", after: str = "", limit: int = 100) -> Sequence[Document]:
        """Return the documents whose keys have this prefix and come after `after`, by key in code point order.

        At most `limit`; the key of the last is the `after` of the next page, so that no document is skipped or repeated
        while others are added and deleted.
        """
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None: ...


@runtime_checkable
class BoundedStore(Protocol):
    """A store that waits for a server, for a time that each user may choose."""

    def within(self, seconds: float) -> Store:
        """Return the same store, whose calls end after so many seconds."""
        ...


@runtime_checkable
class MovingStore(Protocol):
    """A store whose server may be replaced by one that lacks its last writes."""

    @property
    def server_since(self) -> float:
        """The time of this event loop since when one and the same server has answered, as far as can be seen."""
        ...


@runtime_checkable
class ListableStore(Protocol):
    """A store that can name its collections."""

    async def collections(self) -> Sequence[str]:
        """Return the names of the collections that have documents, sorted.

        Raises:
            StoreError: The store cannot be read.
        """
        ...


@runtime_checkable
class CompactableStore(Protocol):
    """A store that keeps traces of deleted documents until it is compacted."""

    async def compact(self) -> None:
        """Clear the traces of deleted documents.

        Raises:
            StoreError: The store cannot be written.
        """
        ...


@runtime_checkable
class SearchableStore(Protocol):
    """A store that searches the texts of its documents where they are."""

    async def search(
        self, collection: str, texts: Sequence[str], *, after: str = ""
    ) -> tuple[Sequence[Document], str | None]:
        """Return the next documents whose key, or value as compact ASCII JSON, contains one of these texts.

        A call looks at a bounded number of documents, so that others need not wait for a large collection.

        Returns:
            The documents found, and the key after which to continue; None at the end.

        Raises:
            StoreError: The store cannot be read.
        """
        ...


async def iter_containing(store: Store, collection: str, texts: Sequence[str]) -> AsyncGenerator[Document, None]:
    """Yield the documents whose key, or value as compact ASCII JSON, contains one of these texts, by key."""
    if not isinstance(store, SearchableStore):
        async for found in iter_documents(store, collection):
            if contains(texts, found.key, to_json(collection, found.key, found.value)):
                yield found
        return
    after: str | None = ""
    while after is not None:
        page, after = await store.search(collection, texts, after=after)
        for found in page:
            yield found


def contains(texts: Sequence[str], key: str, value: str) -> bool:
    """Return whether the key of a document, or its value as JSON, contains one of these texts."""
    return any(text in key or text in value for text in texts)


def to_json(collection: str, key: str, value: Any) -> str:
    """Return the value of a document as ASCII text, for stores.

    Raises:
        StoreError: The value is not JSON; NaN is not.
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as exc:
        raise StoreError(f"the value of {key!r} is not JSON: {exc}", collection=collection) from None


async def iter_documents(store: Store, collection: str, prefix: str = "") -> AsyncGenerator[Document, None]:
    """Yield all documents of a collection whose keys have this prefix, by key."""
    async for page in iter_pages(store, collection, prefix):
        for found in page:
            yield found


async def iter_pages(store: Store, collection: str, prefix: str = "") -> AsyncGenerator[Sequence[Document], None]:
    """Yield all documents of a collection whose keys have this prefix, in pages."""
    after = ""
    while True:
        page = await store.scan(collection, prefix=prefix, after=after, limit=_PAGE)
        yield page
        if len(page) < _PAGE:
            return
        after = page[-1].key
