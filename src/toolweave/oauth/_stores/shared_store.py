"""Tokens in a store of documents that many machines share, always encrypted."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio

from toolweave._option_checks import check_kind
from toolweave.config import Secret
from toolweave.errors import StoreError
from toolweave.oauth._records import TokenKey, TokenRecord
from toolweave.oauth._stores.records import digest, name_of, newest_first, read_record, write_record
from toolweave.oauth._stores.sealing import KEY_VARIABLE, configured_key
from toolweave.state import Delete, Document, Store, iter_documents
from toolweave.state.checks import STORE
from toolweave.state.deletions import deletions

_log = logging.getLogger("toolweave.oauth")
TOKENS = "oauth-tokens"
LOCKS = "oauth-locks"
LOCK_SECONDS = 15.0
"""Lifetime of a lock without renewal; the lock of a process that died ends then."""
_PAUSE = 0.05


class SharedTokenStore:
    """A `TokenStore` in any `toolweave.state.Store`, such as Redis, for servers with many users.

    Every record is encrypted (AES-256-GCM) and bound to its key, so that a writer of the store can neither read one nor
    put it in the place of another. Only the number of records, and which of them are of the same user, can be seen
    there.

    Args:
        store: The store; the caller opens and closes it.
        key: 32 bytes in base64; by default the environment's `TOOLWEAVE_TOKEN_KEY`. Several with commas between them:
            the first encrypts, each can decrypt.

    Raises:
        StoreError: The key is missing or not valid.
    """

    def __init__(self, store: Store, *, key: str | Secret | None = None) -> None:
        check_kind("SharedTokenStore.store", store, STORE)
        cipher = configured_key(key)
        if cipher is None:
            raise StoreError(f"tokens in a shared store are always encrypted: give a key, or set {KEY_VARIABLE}")
        self._store = store
        self._cipher = cipher

    async def load(self, key: TokenKey) -> TokenRecord | None:
        """Return the record of a key, or None.

        Raises:
            StoreError: The store cannot be reached, or the record cannot be decrypted.
        """
        found = await self._store.get(TOKENS, _place(key))
        if found is None:
            return None
        return self._opened(found)

    async def save(self, record: TokenRecord) -> None:
        """Store a record, replacing the one with its key.

        Raises:
            StoreError: The store cannot be reached.
        """
        place = _place(record.key)
        await self._store.put(TOKENS, place, self._cipher.seal(write_record(record), name=place))

    async def delete(self, key: TokenKey) -> bool:
        """Delete the record of a key; return whether there was one.

        Raises:
            StoreError: The store cannot be reached.
        """
        return await self._store.delete(TOKENS, _place(key))

    async def records(self, *, resource: str | None = None, principal: str | None = None) -> Sequence[TokenRecord]:
        """Return the records of a resource, of a principal, or all, the newest first.

        Without a principal all users' are read.

        Raises:
            StoreError: The store cannot be reached, or a record cannot be decrypted.
        """
        prefix = ""
        if principal is not None:
            prefix = f"{digest(principal)}/"
        found = [self._opened(one) async for one in iter_documents(self._store, TOKENS, prefix)]
        return newest_first(found, resource=resource, principal=principal)

    @asynccontextmanager
    async def locked(self, key: TokenKey, *, seconds: float) -> AsyncGenerator[None]:
        """Hold the record of a key alone, among all processes that use the store.

        Raises:
            StoreError: Another holder keeps it for longer than these seconds, or the store cannot be reached.
        """
        lock = _StoreLock(self._store, _place(key))
        with anyio.move_on_after(seconds):
            await lock.take()
        if not lock.held:
            raise StoreError(f"the token for {key.resource} is held by another process for longer than {seconds:g} s")
        failure: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lock.keep)
                try:
                    yield
                except Exception as exc:  # boundary: raised below, a task group would wrap it
                    failure = exc
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await lock.release()
        if failure is not None:
            raise failure

    def __repr__(self) -> str:
        return f"<SharedTokenStore on {type(self._store).__name__}>"

    def _opened(self, found: Document) -> TokenRecord:
        record = read_record(self._cipher.open(str(found.value), name=found.key))
        if _place(record.key) != found.key:
            raise StoreError("a record is not that of its key: it is damaged", collection=TOKENS)
        return record


class _StoreLock:
    """A lock that is a document, which expires unless its holder renews it."""

    # The document is written only if it does not exist, and renewed and deleted only at the revision that this holder
    # wrote. So a holder whose lock has expired cannot end the lock of its successor. Writes are shielded: the revision
    # of a write that is cancelled would not be known, and the lock could not be released.

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._holder = secrets.token_hex(16)
        self._revision: int | None = None

    @property
    def held(self) -> bool:
        return self._revision is not None

    async def take(self) -> None:
        """Wait until it is free and take it."""
        while not self.held:
            with anyio.CancelScope(shield=True):
                self._revision = await self._put(0)
            if not self.held:
                await anyio.sleep(_PAUSE)

    async def keep(self) -> None:
        """Renew it until cancelled; a lock that cannot be renewed lasts until it expires."""
        while self._revision is not None:
            await anyio.sleep(LOCK_SECONDS / 3)
            try:
                with anyio.CancelScope(shield=True):
                    # None if the lock has expired and another process holds it. The old revision can delete nothing
                    # then.
                    self._revision = await self._put(self._revision) or self._revision
            except StoreError as exc:
                _log.debug("a lock of a token cannot be renewed: %s", exc)

    async def release(self) -> None:
        """Release it; one that cannot be released expires."""
        if self._revision is None:
            return
        try:
            await self._store.delete(LOCKS, self._name, expect=self._revision)
        except StoreError as exc:
            _log.debug("a lock of a token cannot be released: %s", exc)

    async def _put(self, expect: int) -> int | None:
        return await self._store.put(LOCKS, self._name, self._holder, ttl=LOCK_SECONDS, expect=expect)


async def token_documents(store: Store, principals: Sequence[str]) -> list[Delete]:
    """Return the changes that delete the tokens of these principals, whose records are found without the key.

    Raises:
        StoreError: The store cannot be read.
    """
    changes: list[Delete] = []
    for principal in principals:
        prefix = f"{digest(principal)}/"
        changes += await deletions(store, TOKENS, prefix)
        changes += await deletions(store, LOCKS, prefix)
    return changes


def _place(key: TokenKey) -> str:
    """Return the name of a record: those of one principal begin alike, and so are read without the others."""
    return f"{digest(key.principal)}/{name_of(key)}"
