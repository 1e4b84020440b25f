"""A semaphore in a store: at most N tasks of a server are outstanding, for all processes that share the store.

Each permit is a document under a number, which is taken by writing it where there is none. So any number of replicas
hold no more of them than there are, and nobody counts. Knows no task.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toolweave.state import Document, Store

__all__ = ["Permit", "StoreSemaphore"]

MOST = 1000
OPEN_TO_ALL = 0.8
"""The part of the permits that is taken blindly; an owner who takes one of the rest has to hold few."""
FEW = 0.1
"""The part of the permits up to which an owner may have some of the rest."""
TRIES = 8
"""Guesses at a free number before all of them are read."""
REFUSED_SECONDS = 1.0
"""Seconds for which an owner that was refused is refused again without reading the store."""


@dataclass(frozen=True, slots=True)
class Permit:
    """A permit that is held.

    Attributes:
        key: Its number.
        revision: Of its document: nobody releases what expired and was acquired by another.
    """

    key: str
    revision: int


class StoreSemaphore:
    """The permits of one server.

    Args:
        server: The server's name.
        clock: Returns the time in seconds.
        most: The number of slots.
    """

    def __init__(self, store: Store, server: str, clock: Callable[[], float], *, most: int = MOST) -> None:
        self._store = store
        self._collection = f"task-permits {server}"
        self._clock = clock
        self._most = most
        self._open = max(1, int(most * OPEN_TO_ALL))
        self._refused: dict[str | None, float] = {}  # until when, by owner; None for all of them

    async def acquire(self, owner: str | None, ttl: float) -> Permit | None:
        """Take a permit for so many seconds at most; None when there is none for this owner.

        Raises:
            StoreError: The store cannot be reached.
        """
        now = self._clock()
        self._refused = {who: until for who, until in self._refused.items() if until > now}
        if None in self._refused or owner in self._refused:
            return None
        for _ in range(TRIES):
            permit = await self._take(random.randrange(self._open), owner, ttl)  # noqa: S311 - spreads, guards nothing
            if permit is not None:
                return permit
        return await self._look(owner, ttl)

    async def release(self, permit: Permit) -> None:
        """Give a permit back, unless its time was over.

        Raises:
            StoreError: The store cannot be reached; the permit is free when its time is over.
        """
        await self._store.delete(self._collection, permit.key, expect=permit.revision)

    async def _look(self, owner: str | None, ttl: float) -> Permit | None:
        """Look at all numbers and take one that is free, of the last only for an owner who has few."""
        taken: Sequence[Document] = await self._store.scan(self._collection, limit=self._most)
        free = sorted(set(range(self._most)) - {int(one.key) for one in taken})
        if not free:
            self._refused[None] = self._clock() + REFUSED_SECONDS
            return None
        open_to_all = [number for number in free if number < self._open]
        has_few = owner is None or sum(one.value == owner for one in taken) < self._most * FEW
        if not open_to_all and not has_few:
            self._refused[owner] = self._clock() + REFUSED_SECONDS
            return None
        free = open_to_all or free
        for number in random.sample(free, min(TRIES, len(free))):
            permit = await self._take(number, owner, ttl)
            if permit is not None:
                return permit
        return None  # as many others took them meanwhile

    async def _take(self, number: int, owner: str | None, ttl: float) -> Permit | None:
        key = f"{number:06}"
        revision = await self._store.put(self._collection, key, owner, ttl=ttl, expect=0)
        return None if revision is None else Permit(key, revision)
