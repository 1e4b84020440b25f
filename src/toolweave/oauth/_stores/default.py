"""The default store: the keyring of the machine if it has one, else a file."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio.to_thread

from toolweave.oauth._records import TokenKey, TokenRecord, TokenStore
from toolweave.oauth._stores.file_store import FileTokenStore
from toolweave.oauth._stores.keyring_store import KeyringTokenStore, machine_keyring


class MachineTokenStore:
    """The `TokenStore` of this user on this machine: a `KeyringTokenStore`, or a `FileTokenStore` without a keyring.

    The choice is made at the first use, because it loads the backends of keyrings.
    """

    def __init__(self) -> None:
        self._chosen: TokenStore | None = None

    async def load(self, key: TokenKey) -> TokenRecord | None:
        """Return the record of a key, or None."""
        return await (await self._store()).load(key)

    async def save(self, record: TokenRecord) -> None:
        """Store a record, replacing the one with its key."""
        await (await self._store()).save(record)

    async def delete(self, key: TokenKey) -> bool:
        """Delete the record of a key; return whether there was one."""
        return await (await self._store()).delete(key)

    async def records(self, *, resource: str | None = None, principal: str | None = None) -> Sequence[TokenRecord]:
        """Return the records of a resource, of a principal, or all, the newest first."""
        return await (await self._store()).records(resource=resource, principal=principal)

    @asynccontextmanager
    async def locked(self, key: TokenKey, *, seconds: float) -> AsyncGenerator[None]:
        """Hold the record of a key alone, among all processes of this machine."""
        async with (await self._store()).locked(key, seconds=seconds):
            yield

    def __repr__(self) -> str:
        if self._chosen is None:
            return "<MachineTokenStore>"
        return f"<MachineTokenStore: {self._chosen!r}>"

    async def _store(self) -> TokenStore:
        if self._chosen is None:
            keyring = await anyio.to_thread.run_sync(machine_keyring)
            if keyring is None:
                self._chosen = FileTokenStore()
            else:
                self._chosen = KeyringTokenStore(keyring)
        return self._chosen
