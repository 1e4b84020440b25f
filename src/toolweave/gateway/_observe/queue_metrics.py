"""Prometheus metrics of the jobs that wait for a worker, for the autoscaling of workers.

A gateway shows them for its store of runs, and `toolweave worker` for its backend. They come from the store, so every
process shows the same figures, and one of them is enough.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable

import anyio
from prometheus_client import CollectorRegistry, Gauge

from toolweave.agent import RunStatuses
from toolweave.agent._stored.records import RUN_NOTES
from toolweave.errors import StoreError, printable
from toolweave.jobs import QueuedJobs
from toolweave.jobs._queued import queued_jobs
from toolweave.serve._tasks.store import TASK_NOTES
from toolweave.state import Store

_log = logging.getLogger("toolweave.gateway")
_READ_SECONDS = 5.0
"""Seconds that reading may take."""
_FRESH_SECONDS = 2.0
"""Seconds for which figures are shown again: reading them costs a scan of all jobs that wait."""


class QueueMetrics:
    """The number of the jobs that wait for a worker, and the age of the oldest, by topic.

    While the store cannot be read they are NaN, so that an autoscaler keeps the number of workers.

    Args:
        registry: Where they are registered.
        store: The store of the jobs.
        topics: Topics that are shown even without a job.
        clock: Returns the time in seconds since the epoch.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        store: Store,
        *,
        topics: Iterable[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._clock = clock
        self._topics = set(topics)
        self._lock = anyio.Lock()
        self._fresh_until = 0.0
        self._is_readable = True
        self._jobs = Gauge(
            "toolweave_queued_jobs",
            "Submitted runs and tasks that wait for a worker.",
            ("topic",),
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._oldest = Gauge(
            "toolweave_oldest_queued_job_seconds",
            "Time since the oldest run or task that waits for a worker was submitted.",
            ("topic",),
            registry=registry,
            multiprocess_mode="livemax",
        )

    def show(self, topics: Iterable[str]) -> None:
        """Show these topics from now on, also without a job."""
        self._topics.update(topics)
        self._fresh_until = 0.0

    async def refresh(self) -> None:
        """Read the figures, unless they were read a moment ago."""
        async with self._lock:
            if anyio.current_time() < self._fresh_until:
                return
            try:
                with anyio.fail_after(_READ_SECONDS):
                    found = await _queued_by_topic(self._store)
            except (StoreError, TimeoutError) as error:
                self._hide(error)
                return
            self._is_readable = True
            self._topics |= found.keys()  # a topic stays, so that it is seen to become empty
            for topic in self._topics:
                self._set(topic, found.get(topic))
            self._fresh_until = anyio.current_time() + _FRESH_SECONDS

    def _set(self, topic: str, queued: QueuedJobs | None) -> None:
        if queued is None:
            self._jobs.labels(topic).set(0)
            self._oldest.labels(topic).set(0)
        else:
            self._jobs.labels(topic).set(queued.count)
            self._oldest.labels(topic).set(max(0.0, self._clock() - queued.oldest_at))

    def _hide(self, error: StoreError | TimeoutError) -> None:
        if self._is_readable:
            reason = printable(str(error)) or f"no response within {_READ_SECONDS:g} s"
            _log.warning("jobs that wait for a worker cannot be counted: %s", reason)
        self._is_readable = False
        for topic in self._topics:
            self._jobs.labels(topic).set(math.nan)
            self._oldest.labels(topic).set(math.nan)


async def _queued_by_topic(store: Store) -> dict[str, QueuedJobs]:
    runs = await RunStatuses(store).queued()
    tasks = await queued_jobs(store, TASK_NOTES)
    found = {RUN_NOTES.topics + agent: queued for agent, queued in runs.items()}
    return found | {TASK_NOTES.topics + server: queued for server, queued in tasks.items()}
