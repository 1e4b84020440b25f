"""The port of the room: a small store of JSON documents, the same for memory and for a database.

Says what a store promises; knows no store.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from toolweave.errors import StoreError

__all__ = ["Document", "Store", "to_json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document as it was when it was read; changing its value changes nothing in the store.

    Attributes:
        key: Its name, unique in its collection.
        value: Any JSON value.
        revision: Grows with every write to the store, and is never used twice.
        expires_at: When it is gone, in seconds of the store's clock; None for never.
    """

    key: str
    value: Any
    revision: int
    expires_at: float | None = None


@runtime_checkable
class Store(Protocol):
    """Documents by collection and key (DESIGN decision 11).

    Every write is atomic and seen by every later read. What is past its ttl is as good as deleted. Any task may use an
    open store; entering is re-entrant by count.
    """

    async def get(self, collection: str, key: str) -> Document | None:
        """Return a document, or None when there is none."""
        ...

    async def put(
        self, collection: str, key: str, value: Any, *, ttl: float | None = None, expect: int | None = None
    ) -> int | None:
        """Write a document, in the place of one that has its key.

        Args:
            collection: Where; collections need not be made first.
            key: Its name there.
            value: Any JSON value; NaN is none.
            ttl: Seconds from now until it is gone; None keeps it, also in the place of one that was to expire.
            expect: Write only if the document has this revision; 0 is "there is none".

        Returns:
            Its new revision, or None when `expect` did not hold and nothing was written.

        Raises:
            StoreError: The store is full, or the value is no JSON.
        """
        ...

    async def delete(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        """Delete a document, with `expect` only if it has this revision; return whether one was deleted."""
        ...

    async def scan(self, collection: str, *, prefix: str = "", after: str = "", limit: int = 100) -> Sequence[Document]:
        """Return the documents whose keys have this prefix and come after `after`, by key in code point order.

        At most `limit`; the key of the last is the `after` of the next page, so that what stays is neither skipped nor
        repeated while others come and go.
        """
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None: ...


def to_json(collection: str, key: str, value: Any) -> str:
    """Return the value of a document as ASCII text, for stores.

    Raises:
        StoreError: It is no JSON; NaN is none.
    """
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as exc:
        raise StoreError(f"{key!r} is no JSON: {exc}", collection=collection) from None
