"""The tokens of one user in a store of documents, which are found without the key that they are encrypted with."""

from __future__ import annotations

from collections.abc import Sequence

from toolweave.oauth._stores.records import digest
from toolweave.oauth._stores.shared_store import LOCKS, TOKENS
from toolweave.state import Delete, Store
from toolweave.state.deletions import deletions


async def token_documents(store: Store, principals: Sequence[str]) -> list[Delete]:
    """Return the changes that delete the tokens of these principals.

    Raises:
        StoreError: The store cannot be read.
    """
    changes: list[Delete] = []
    for principal in principals:
        prefix = f"{digest(principal)}/"
        changes += await deletions(store, TOKENS, prefix)
        changes += await deletions(store, LOCKS, prefix)
    return changes
