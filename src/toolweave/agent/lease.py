"""What keeps a run from going on in two processes: the lease of a run, renewed while it goes on.

Knows which leases are those of runs, and what is said of a run that is taken; the lease itself is `work.lease`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from toolweave.agent.records import LEASES
from toolweave.errors import RunError
from toolweave.state import Store
from toolweave.work import lease as work_lease
from toolweave.work.lease import LEASE_SECONDS, is_living

__all__ = ["LEASE_SECONDS", "Lease", "ask_to_cancel", "is_held", "is_living"]


class Lease(work_lease.Lease):
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
        super().__init__(store, LEASES, run_id, seconds=seconds, sleep=sleep)
        self._run_id = run_id
        self._held_for = seconds

    async def take(self) -> None:
        """Take it.

        Raises:
            RunError: A living process has it.
        """
        holder = await super().take()
        if holder is None:
            return
        where = f"in process {holder['process']} on {holder['machine'].split(' ')[0]}"
        raise RunError(
            f"goes on elsewhere {where}; a process that died holds it for {self._held_for:g} s at most",
            run_id=self._run_id,
            reason="error",
        )


async def is_held(store: Store, run_id: str) -> bool:
    """Whether a living process runs a run now."""
    return await work_lease.is_held(store, LEASES, run_id)


async def ask_to_cancel(store: Store, run_id: str, *, seconds: float = LEASE_SECONDS) -> bool:
    """Ask whoever runs a run to cancel it; return False when nobody does. It is told at the next renewal."""
    return await work_lease.ask_to_cancel(store, LEASES, run_id, seconds=seconds)
