"""What keeps a run from going on in two processes: a lease in the store, renewed while the run goes on.

Knows a store and a clock; not what a run does.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import anyio

from toolweave.agent.records import LEASES
from toolweave.errors import RunError, StoreError
from toolweave.state import Document, Store

__all__ = ["LEASE_SECONDS", "Lease", "ask_to_cancel", "is_held"]

LEASE_SECONDS = 15.0
"""How long a run is kept for a process that says nothing; a dead one of this machine keeps nothing."""


class Lease:
    """The right to run one run.

    Args:
        run_id: The run.
        seconds: How long it holds without being renewed.
        sleep: Waits between renewals.
    """

    def __init__(
        self,
        store: Store,
        run_id: str,
        *,
        seconds: float = LEASE_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._store = store
        self._run_id = run_id
        self._seconds = seconds
        self._sleep = sleep
        self._value: dict[str, Any] = {"holder": uuid.uuid4().hex, "process": os.getpid(), "machine": machine()}
        self._revision = 0
        self.lost = False

    async def take(self) -> None:
        """Take it.

        Raises:
            RunError: A living process has it.
        """
        found = await self._store.get(LEASES, self._run_id)
        if found is not None and not _is_abandoned(found.value):
            raise self._taken(found)
        taken = await self._put(0 if found is None else found.revision)
        if not taken:
            raise self._taken(await self._store.get(LEASES, self._run_id))

    async def keep(self, lost: Callable[[], None], cancel: Callable[[], None]) -> None:
        """Renew it for ever; call `lost` and return when another process has it, `cancel` when one asks for that."""
        while True:
            await self._sleep(self._seconds / 3)
            try:
                if await self._put(self._revision) or await self._still_ours(cancel):
                    continue
            except StoreError:
                continue  # busy for a while: whether it still holds is seen the next time
            self.lost = True
            lost()
            return

    async def release(self) -> None:
        """Give it back, if it is still held; what cannot be given back runs out."""
        try:
            await self._store.delete(LEASES, self._run_id, expect=self._revision)
        except StoreError:
            pass

    async def _put(self, expect: int) -> bool:
        revision = await self._store.put(LEASES, self._run_id, self._value, ttl=self._seconds, expect=expect)
        self._revision = revision or self._revision
        return revision is not None

    async def _still_ours(self, cancel: Callable[[], None]) -> bool:
        found = await self._store.get(LEASES, self._run_id)
        if found is None:  # it ran out, on a machine that slept, and nobody wanted it
            return await self._put(0)
        if found.value["holder"] != self._value["holder"]:
            return False
        self._value = found.value
        self._revision = found.revision
        if found.value.get("cancel"):
            cancel()
        return await self._put(self._revision)

    def _taken(self, found: Document | None) -> RunError:
        who = "" if found is None else f" in process {found.value['process']} on {found.value['machine'].split(' ')[0]}"
        return RunError(
            f"goes on elsewhere{who}; a process that died holds it for {self._seconds:g} s at most",
            run_id=self._run_id,
            reason="error",
        )


async def is_held(store: Store, run_id: str) -> bool:
    """Whether a living process runs a run now."""
    found = await store.get(LEASES, run_id)
    return found is not None and not _is_abandoned(found.value)


async def ask_to_cancel(store: Store, run_id: str, *, seconds: float = LEASE_SECONDS) -> bool:
    """Ask whoever runs a run to cancel it; return False when nobody does. It is told at the next renewal."""
    while True:
        found = await store.get(LEASES, run_id)
        if found is None or _is_abandoned(found.value):
            return False
        value = {**found.value, "cancel": True}
        if await store.put(LEASES, run_id, value, ttl=seconds, expect=found.revision) is not None:
            return True


@cache
def machine() -> str:
    """Return what stands for everything that shares process ids with this process."""
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        pass  # not on Linux, where the name has to do
    return " ".join(parts)


def _is_abandoned(value: Mapping[str, Any]) -> bool:
    """Whether a lease is that of a dead process of this machine."""
    if os.name != "posix" or value["machine"] != machine():
        return False
    try:
        os.kill(value["process"], 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
