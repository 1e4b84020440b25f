"""Durable jobs: what stands in a store is done once, by any worker, whoever dies (`[distributed]`).

The engine is `worker.py`; what a kind of job has to say is `kind.py`: agents' runs and servers' tasks are kinds. Who
is woken when is told by a queue, docket's on Redis, Valkey or in memory. The room knows neither agents nor servers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolweave.jobs._queue import Handler, Job, Reschedule, WorkBackend, WorkQueue

if TYPE_CHECKING:
    from toolweave.jobs._backend import Backend
    from toolweave.jobs._worker import JobWorker, resubmit_jobs, work_jobs

__all__ = [
    "Backend",
    "Handler",
    "Job",
    "JobWorker",
    "Reschedule",
    "WorkBackend",
    "WorkQueue",
    "resubmit_jobs",
    "work_jobs",
]

_LATE = {"Backend": "_backend", "JobWorker": "_worker", "resubmit_jobs": "_worker", "work_jobs": "_worker"}
"""Names by their modules, loaded when they are asked for: who only names the ports needs no store."""


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(f"toolweave.jobs.{_LATE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
