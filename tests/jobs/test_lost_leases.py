"""Leases in a store that is slow or silent: their holders rely on them no longer than they are theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio

from toolweave.jobs._lease import Lease
from toolweave.state import MemoryStore


class Silent(MemoryStore):
    """A store that makes each write at once, and answers later, or never."""

    seconds = 0.0

    async def write(self, *args: Any, **options: Any) -> Sequence[int] | None:
        revisions = await super().write(*args, **options)
        await anyio.sleep(self.seconds)
        return revisions


def _ignored() -> None:
    """Do nothing: nobody requests to cancel the work."""


async def test_a_lease_counts_from_before_its_write_however_late_the_store_answers() -> None:
    store = Silent()
    store.seconds = 0.3
    lease = Lease(store, "leases", "work", seconds=0.3)
    assert (await lease.acquire()).acquired

    assert not lease.sure


async def test_work_under_a_strict_lease_stops_while_the_store_does_not_answer() -> None:
    store = Silent()
    lease = Lease(store, "leases", "work", seconds=0.3, strict=True)
    assert (await lease.acquire()).acquired

    store.seconds = 1_000
    with anyio.fail_after(20):
        async with lease.kept(_ignored):
            await anyio.sleep_forever()

    assert lease.lost
