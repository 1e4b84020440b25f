"""Work beyond one process: jobs that any worker may do, over docket on Redis, Valkey or in memory (`[distributed]`).

The room knows jobs only: not what a run or a task is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolweave.work.queue import Handler, Job, Later, WorkBackend, WorkQueue

if TYPE_CHECKING:
    from toolweave.work.backend import Backend

__all__ = ["Backend", "Handler", "Job", "Later", "WorkBackend", "WorkQueue"]


def __getattr__(name: str) -> Any:
    if name == "Backend":  # who only names the ports needs no store
        from toolweave.work.backend import Backend

        return Backend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
