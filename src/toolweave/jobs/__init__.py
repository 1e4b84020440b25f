"""Durable jobs: a job in a store is done once, by any worker, even if workers die (`[distributed]`).

Agents' runs and servers' tasks are kinds of job (`JobKind`). A queue wakes workers: docket's on Redis, Valkey or in
memory. Independent of agents and servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolweave.jobs._queue import Handler, Job, Reschedule, WorkBackend, WorkQueue

if TYPE_CHECKING:
    from toolweave.jobs._backend import Backend
    from toolweave.jobs._lease import Lease, LeaseAttempt, ask_to_cancel
    from toolweave.jobs._queued import QueuedJobs
    from toolweave.jobs._worker import JobWorker, resubmit_jobs, work_jobs
    from toolweave.jobs.retention import Retention
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "_backend": ("Backend",),
            "_lease": (
                "Lease",
                "LeaseAttempt",
                "ask_to_cancel",
            ),
            "_queued": ("QueuedJobs",),
            "retention": ("Retention",),
            "_worker": (
                "JobWorker",
                "resubmit_jobs",
                "work_jobs",
            ),
        },
    )

__all__ = [
    "Backend",
    "Handler",
    "Job",
    "JobWorker",
    "Lease",
    "LeaseAttempt",
    "QueuedJobs",
    "Reschedule",
    "Retention",
    "WorkBackend",
    "WorkQueue",
    "ask_to_cancel",
    "resubmit_jobs",
    "work_jobs",
]
