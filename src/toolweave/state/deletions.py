"""Deletions of many documents: found by prefix or by value, and made in writes of a bounded size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolweave.state.store import Delete, Document, Store, iter_documents

__all__ = ["deletions", "write_deletions"]

_BATCH = 200
"""Documents that are deleted in one write."""


async def deletions(
    store: Store, collection: str, prefix: str = "", *, is_wanted: Callable[[Document], bool] | None = None
) -> list[Delete]:
    """Return the changes that delete the wanted documents of a collection whose keys have this prefix.

    Raises:
        StoreError: The store cannot be read.
    """
    return [
        Delete(collection=collection, key=found.key)
        async for found in iter_documents(store, collection, prefix)
        if is_wanted is None or is_wanted(found)
    ]


async def write_deletions(store: Store, changes: Sequence[Delete]) -> None:
    """Delete documents, in several writes if they are many.

    Raises:
        StoreError: The store cannot be written.
    """
    for start in range(0, len(changes), _BATCH):
        await store.write(changes[start : start + _BATCH])
