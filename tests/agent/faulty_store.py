"""A view of a store in which one write goes wrong, as when a process dies or the store is away."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, Self

from toolweave.errors import StoreError
from toolweave.state import Change, Delete, Document, Put, Store

__all__ = ["MODES", "FaultyStore", "Mode", "ProcessDiedError"]

Mode = Literal["dies before", "dies after", "is away before", "is away after", "answers no"]
MODES: tuple[Mode, ...] = ("dies before", "dies after", "is away before", "is away after", "answers no")


class ProcessDiedError(Exception):
    """Ends everything that a process does, as its death would; no code of ours waits or tries again."""


class FaultyStore:
    """A view of a store in which one write goes wrong.

    Attributes:
        writes: The number of writes so far.
    """

    def __init__(self, store: Store, at: int = 0, mode: Mode = "dies before") -> None:
        self.writes = 0
        self._store = store
        self._at = at
        self._mode: Mode = mode
        self._is_dead = False

    async def get(self, collection: str, key: str) -> Document | None:
        self._check_alive()
        return await self._store.get(collection, key)

    async def read(self, names: Sequence[tuple[str, str]]) -> Sequence[Document | None]:
        self._check_alive()
        return await self._store.read(names)

    async def scan(self, collection: str, *, prefix: str = "", after: str = "", limit: int = 100) -> Sequence[Document]:
        self._check_alive()
        return await self._store.scan(collection, prefix=prefix, after=after, limit=limit)

    async def put(
        self, collection: str, key: str, value: Any, *, ttl: float | None = None, expect: int | None = None
    ) -> int | None:
        revisions = await self.write([Put(collection=collection, key=key, value=value, ttl=ttl, expect=expect)])
        if revisions is None:
            return None
        return revisions[0]

    async def delete(self, collection: str, key: str, *, expect: int | None = None) -> bool:
        if await self.get(collection, key) is None:
            return False
        return await self.write([Delete(collection=collection, key=key, expect=expect)]) is not None

    async def write(self, changes: Sequence[Change], *, signal: str | None = None) -> Sequence[int] | None:
        self._check_alive()
        self.writes += 1
        if self.writes != self._at:
            return await self._store.write(changes, signal=signal)
        if self._mode == "answers no":
            return None
        if self._mode.endswith("after"):
            await self._store.write(changes, signal=signal)
        if self._mode.startswith("dies"):
            self._is_dead = True
            raise ProcessDiedError
        raise StoreError("the store is away")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    def _check_alive(self) -> None:
        """Fail for the rest of a process that died: nothing of it reaches the store any more."""
        if self._is_dead:
            raise ProcessDiedError
