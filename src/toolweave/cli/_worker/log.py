"""Log output of `toolweave worker`: a line for each job that starts and ends, as text or as JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

from toolweave.cli._render.text import safe_json
from toolweave.cli._screen import answer, note
from toolweave.errors import StoreError
from toolweave.jobs import Reschedule
from toolweave.jobs._queue import HandOver

if TYPE_CHECKING:
    from toolweave.agent import RunStatuses
    from toolweave.cli._worker.probes import WorkerProbes
    from toolweave.jobs import Backend, Handler, Job, Retention
    from toolweave.state import Store

_RUNS = "runs"
_TASKS = "tasks"
"""Prefixes of topics, before `:` and the name of the agent or server."""
_SHORT = 8


class ReportingBackend:
    """A backend that reports its jobs, and otherwise delegates to another backend."""

    def __init__(self, backend: Backend, reporter: WorkerReporter) -> None:
        self._backend = backend
        self._reporter = reporter

    @property
    def store(self) -> Store:
        """The store of the backend."""
        return self._backend.store

    @property
    def retention(self) -> Retention | None:
        """The retention of the data of the backend's agents."""
        return self._backend.retention

    @property
    def queue(self) -> Self:
        """The queue of the backend."""
        return self

    async def submit(self, job: Job) -> bool:
        """Submit a job; see `WorkQueue`."""
        return await self._backend.queue.submit(job)

    async def hasten(self, job: Job) -> None:
        """Have a postponed job delivered now; see `WorkQueue`."""
        await self._backend.queue.hasten(job)

    async def waiting(self, topic: str, keys: Sequence[str]) -> Sequence[str]:
        """Return those of these keys whose jobs are queued; see `WorkQueue`."""
        return await self._backend.queue.waiting(topic, keys)

    async def work(
        self,
        handlers: Mapping[str, Handler],
        *,
        concurrency: int = 10,
        grace_seconds: float = 0,
        started: Callable[[], None] | None = None,
    ) -> None:
        """Execute jobs and report each; see `WorkQueue`."""

        def begun() -> None:
            self._reporter.started(self._backend.where, handlers, concurrency)
            if started is not None:
                started()

        reported = self._reporter.reported(handlers)
        await self._backend.queue.work(reported, concurrency=concurrency, grace_seconds=grace_seconds, started=begun)

    async def __aenter__(self) -> Self:
        await self._backend.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._backend.__aexit__(exc_type, exc, traceback)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReporter:
    """Reporter of a worker's events.

    Attributes:
        as_json: One JSON object a line on standard output, instead of text on standard error.
        quiet: Report nothing.
        statuses: The runs' statuses, for their outcomes.
        probes: Notified of the same events, or None.
    """

    statuses: RunStatuses
    probes: WorkerProbes | None = None
    as_json: bool = False
    quiet: bool = False

    def started(self, where: str, topics: Iterable[str], concurrency: int) -> None:
        """Report that the worker accepts jobs."""
        named = sorted(topics)
        address = None
        if self.probes is not None:
            self.probes.started(named)
            address = self.probes.address
        if self.as_json:
            served = {} if address is None else {"http": address}
            self._line("started", backend=where, topics=named, concurrency=concurrency, **served)
        elif not self.quiet:
            from toolweave.cli._screen import announce  # rich, which not every command needs

            served = () if address is None else (f"probes at {address}",)
            announce("worker", where, f"{concurrency} at a time", *served, "Ctrl-C stops it")
            for topic in named:
                note(f"  {_words(topic)}")

    def stopping(self) -> None:
        """Report that the worker accepts no more jobs."""
        if self.probes is not None:
            self.probes.stopping()
        if self.as_json:
            self._line("stopping")
        elif not self.quiet:
            note("stopping: turns and calls under way may end, then runs are handed over; a second signal ends at once")

    def reported(self, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """Return the handlers, wrapped to report the start and end of each job."""
        return {topic: self._reported(handler) for topic, handler in handlers.items()}

    def _reported(self, handler: Handler) -> Handler:
        async def handle(job: Job) -> None:
            self._report(job, "begun")
            try:
                await handler(job)
            # The worker is ending. The job is not lost: its lease ends, and another worker takes it.
            except anyio.get_cancelled_exc_class():
                self._report(job, "handed over")
                raise
            except HandOver:
                self._report(job, "handed over")
                raise
            except Reschedule:  # another worker has it, or had it a moment ago
                self._report(job, "put off")
                raise
            except Exception as error:
                self._report(job, "failed", error=f"{type(error).__name__}: {error}")
                raise
            self._report(job, await self._outcome(job))

        return handle

    async def _outcome(self, job: Job) -> str:
        """Return the outcome of a job: a run's status, if it can be read."""
        if job.topic.startswith(f"{_RUNS}:"):
            try:
                run = await self.statuses.get(job.key)
            except StoreError:
                # The outcome is only for the log, so an outage of the store must not make the job fail.
                run = None
            if run is not None:
                return run.status
        return "ended"

    def _report(self, job: Job, event: str, **more: str) -> None:
        if self.probes is not None and self.probes.metrics is not None:
            self.probes.metrics.job_reported(job.topic, event)
        if self.as_json:
            self._line(event, topic=job.topic, key=job.key, delivery=job.delivery, **more)
        elif not self.quiet:
            is_redelivered = job.delivery > 1 and event == "begun"
            delivery = f" (delivery {job.delivery})" if is_redelivered else ""
            reason = f": {more['error']}" if more else ""
            note(f"{time.strftime('%H:%M:%S')}  {_described(job)}  {event}{delivery}{reason}")

    def _line(self, event: str, **members: object) -> None:
        # Keys and errors come from callers and servers, and must not be able to write a line of their own choice.
        answer(safe_json({"event": event, "time": round(time.time(), 3), **members}, indent=None))


def _words(topic: str) -> str:
    kind, _, name = topic.partition(":")
    return {_RUNS: f"runs of agent {name!r}", _TASKS: f"tasks of server {name!r}"}.get(kind, topic)


def _described(job: Job) -> str:
    kind, _, name = job.topic.partition(":")
    noun = {_RUNS: "run", _TASKS: "task"}.get(kind, kind)
    return f"{noun} {job.key[:_SHORT]} of {name!r}"
