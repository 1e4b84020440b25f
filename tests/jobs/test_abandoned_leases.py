"""The lease of a process that does not hold it any more: nobody can be asked there."""

from __future__ import annotations

from typing import Any

from toolweave.errors import StoreError
from toolweave.jobs._lease import Lease, ask_to_cancel
from toolweave.state import MemoryStore


class Undeletable(MemoryStore):
    """A store that deletes nothing, as on a full disk."""

    async def delete(self, *args: Any, **options: Any) -> bool:
        raise StoreError("database or disk is full")


async def test_work_whose_holder_is_gone_cannot_be_asked_to_cancel_and_its_lease_is_left_alone() -> None:
    store = Undeletable()
    lease = Lease(store, "leases", "work")
    assert (await lease.acquire()).acquired
    await lease.release()
    left = await store.get("leases", "work")
    assert left is not None

    assert not await ask_to_cancel(store, "leases", "work")
    assert await store.get("leases", "work") == left
