"""Work beyond one process: jobs that any worker may do, over docket on Redis, Valkey or in memory (`[distributed]`)."""

from __future__ import annotations

from toolweave.work.queue import Handler, Job, WorkBackend, WorkQueue

__all__ = ["Handler", "Job", "WorkBackend", "WorkQueue"]
