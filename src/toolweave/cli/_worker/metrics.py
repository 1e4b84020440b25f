"""Prometheus metrics of a worker: the jobs that it does, and those that wait for one."""

from __future__ import annotations

from collections.abc import Iterable

import anyio.to_thread
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from toolweave.gateway._observe.queue_metrics import QueueMetrics
from toolweave.state import Store

_BEGUN = "begun"


class WorkerMetrics:
    """Counts the jobs of a worker.

    Args:
        store: The store of its backend.
    """

    def __init__(self, store: Store) -> None:
        self._registry = CollectorRegistry()
        self._queue = QueueMetrics(self._registry, store)
        self._ended = Counter(
            "toolweave_worker_jobs",
            "Jobs that this worker ended, handed over or put off, by outcome.",
            ("topic", "outcome"),
            registry=self._registry,
        )
        self._running = Gauge(
            "toolweave_worker_jobs_in_progress", "Jobs that this worker does now.", ("topic",), registry=self._registry
        )

    def started(self, topics: Iterable[str]) -> None:
        """Show these topics, which the worker accepts jobs of."""
        topics = tuple(topics)
        self._queue.show(topics)
        for topic in topics:
            self._running.labels(topic).set(0)

    def job_reported(self, topic: str, event: str) -> None:
        """Count an event of a job: `begun`, or its outcome."""
        if event == _BEGUN:
            self._running.labels(topic).inc()
            return
        self._running.labels(topic).dec()
        self._ended.labels(topic, event.replace(" ", "_")).inc()

    async def rendered(self) -> bytes:
        """Return the page that Prometheus reads."""
        await self._queue.refresh()
        return await anyio.to_thread.run_sync(generate_latest, self._registry)
