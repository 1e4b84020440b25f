"""Tokens in memory, for tests and for programs that sign in each time they start."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio

from toolweave.errors import StoreError
from toolweave.oauth._records import TokenKey, TokenRecord


class MemoryTokenStore:
    """A `TokenStore` that forgets everything with its process, and is for one event loop."""

    def __init__(self) -> None:
        self._records: dict[TokenKey, TokenRecord] = {}
        # The event of each key that is held: set and removed by its holder, also on cancellation. A waiter looks again,
        # because another one may have been faster.
        self._held: dict[TokenKey, anyio.Event] = {}

    async def load(self, key: TokenKey) -> TokenRecord | None:
        """Return the record of a key, or None."""
        return self._records.get(key)

    async def save(self, record: TokenRecord) -> None:
        """Store a record, replacing the one with its key."""
        # Removed first, so that the newest record is the last.
        self._records.pop(record.key, None)
        self._records[record.key] = record

    async def delete(self, key: TokenKey) -> bool:
        """Delete the record of a key; return whether there was one."""
        return self._records.pop(key, None) is not None

    async def records(self, *, resource: str | None = None, principal: str | None = None) -> Sequence[TokenRecord]:
        """Return the records of a resource, of a principal, or all, the newest first."""
        return [one for one in reversed(self._records.values()) if one.key.is_of(resource, principal)]

    @asynccontextmanager
    async def locked(self, key: TokenKey, *, seconds: float) -> AsyncGenerator[None, None]:
        """Hold the record of a key alone.

        Raises:
            StoreError: Another holder keeps it for longer than these seconds.
        """
        with anyio.move_on_after(seconds) as waiting:
            while (held := self._held.get(key)) is not None:
                await held.wait()
        if waiting.cancelled_caught:
            raise StoreError(f"the token for {key.resource!r} is held by another task for more than {seconds:g} s")
        mine = self._held[key] = anyio.Event()
        try:
            yield
        finally:
            del self._held[key]
            mine.set()
