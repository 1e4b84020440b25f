"""The jobs of one topic, done here: docket's worker delivers them, a task group of ours does them.

They are apart so that a job goes on while the queue is lost for a while, and is handed back at once at a shutdown.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import anyio
import anyio.abc
from docket import CurrentExecution, CurrentWorker, Docket, Execution, Worker
from docket.dependencies import FailureHandler
from docket.dependencies import TaskOutcome as Outcome

from toolweave.work.queue import Handler, Job, Later

__all__ = ["FUNCTION", "TopicWorker", "open_docket"]

_log = logging.getLogger("toolweave.work")
FUNCTION = "job"
"""The one function of every docket."""
_SHORTEST, _LONGEST = 1.0, 60.0
"""Seconds until a job that failed is delivered again."""
_RECONNECT_SECONDS = 1.0
_HAND_BACK_SECONDS = 30.0


class _Again(Exception):
    """Ends a delivery so that there will be another.

    Args:
        seconds: When, from now.
        failed: Whether this delivery counts.
    """

    def __init__(self, seconds: float, *, failed: bool = False) -> None:
        super().__init__(seconds)
        self.seconds = seconds
        self.failed = failed


class _Redeliver(FailureHandler["_Redeliver"]):
    """Puts a job back, in the place of docket's own end of it: its message is acknowledged in the same step."""

    async def __aenter__(self) -> Self:
        return self

    async def handle_failure(self, execution: Execution, outcome: Outcome) -> bool:
        again = outcome.exception if isinstance(outcome.exception, _Again) else _Again(_LONGEST, failed=True)
        execution.when = datetime.now(UTC) + timedelta(seconds=again.seconds)  # noqa: TID251 - docket's own clock
        execution.attempt += again.failed
        await execution.schedule(
            replace=True, reschedule_message=execution.message_id, expected_generation=execution.generation
        )
        return True

    @classmethod
    @asynccontextmanager
    async def worker_lifecycle(cls, docket: Docket, worker: Worker) -> AsyncGenerator[None, None]:
        """Tell the topic when its worker takes jobs, and when it does so no more."""
        topic = worker.topic if isinstance(worker, _Worker) else None
        if topic is not None:
            topic.taking()
        try:
            yield
        finally:
            if topic is not None:
                topic.not_taking()


class _Worker(Worker):
    topic: TopicWorker


async def _do(
    about: str,
    execution: Execution = CurrentExecution(),  # noqa: B008 - how docket is asked for it
    worker: Worker = CurrentWorker(),  # noqa: B008
    redeliver: _Redeliver = _Redeliver(),  # noqa: B008
) -> None:
    if isinstance(worker, _Worker):
        await worker.topic.do(execution, about)


def open_docket(url: str, name: str) -> Docket:
    """Return a docket to be entered, with the one function and without any memory of what was done."""
    quiet = logging.getLogger("docket")
    if quiet.level == logging.NOTSET:  # it tells of each job, and of each second of an outage; we tell what matters
        quiet.setLevel(logging.CRITICAL)
    docket = Docket(name=name, url=url, execution_ttl=timedelta(0))
    docket.register(_do, names=[FUNCTION])
    return docket


@dataclass(slots=True)
class _Doing:
    over: anyio.Event = field(default_factory=anyio.Event)
    again: _Again | None = None


class TopicWorker:
    """Does the jobs of one topic.

    Args:
        docket: Open.
        topic: As jobs name it.
        handler: Does them.
        concurrency: How many at the same time.
        redelivery: After how long those of a worker that says nothing are given to another.

    Attributes:
        ready: Set when jobs are taken.
    """

    def __init__(
        self, docket: Docket, topic: str, handler: Handler, *, concurrency: int, redelivery: timedelta
    ) -> None:
        self.ready = anyio.Event()
        self._docket = docket
        self._topic = topic
        self._handler = handler
        self._concurrency = concurrency
        self._redelivery = redelivery
        self._doing: dict[str, _Doing] = {}
        self._group: anyio.abc.TaskGroup | None = None
        self._stopping = False
        self._idle = anyio.Event()  # set when docket's loop has ended

    async def work(self, stop: anyio.Event) -> None:
        """Do jobs until `stop`; then hand back what is not done, within a bound."""
        worker = _Worker(
            self._docket,
            name=f"{socket.gethostname()}#{os.getpid()}#{uuid.uuid4().hex[:8]}",
            concurrency=self._concurrency,
            redelivery_timeout=self._redelivery,
            reconnection_delay=timedelta(seconds=_RECONNECT_SECONDS),
            schedule_automatic_tasks=False,
        )
        worker.topic = self
        # docket must not be cancelled with its jobs: it would wait for them, or leave them to their timeout
        with anyio.CancelScope(shield=True) as scope:
            async with anyio.create_task_group() as self._group, anyio.create_task_group() as loop, worker:
                loop.start_soon(worker.run_forever)
                await stop.wait()
                self._stopping = True
                scope.deadline = anyio.current_time() + _HAND_BACK_SECONDS
                # here all is handed back

    async def do(self, execution: Execution, about: str) -> None:
        """Do one job, or go on waiting for it, as docket's delivery of it."""
        doing = self._doing.get(execution.key)
        if doing is None:
            job = await self._job(execution, about)
            if job is None:
                return
            if self._stopping or self._group is None:
                raise _Again(0)
            doing = self._doing[execution.key] = _Doing()
            self._group.start_soon(self._handle, job, doing)
        await _first(doing.over, self._idle)
        if not doing.over.is_set():  # the queue was lost: the job goes on, and will be delivered again
            raise _Again(0)
        if doing.again is not None:
            raise doing.again

    def taking(self) -> None:
        """Note that docket takes jobs."""
        if self.ready.is_set():
            _log.warning("topic %r: the queue is back", self._topic)
        self._idle = anyio.Event()
        self.ready.set()

    def not_taking(self) -> None:
        """Note that docket takes no more jobs: this is stopped, or the queue was lost."""
        if self._stopping and self._group is not None:
            self._group.cancel_scope.cancel()
        else:
            _log.warning("topic %r: the queue is lost; trying again every %g s", self._topic, _RECONNECT_SECONDS)
            self._idle.set()

    async def _handle(self, job: Job, doing: _Doing) -> None:
        doing.again = _Again(0)  # unless it gets further
        try:
            await self._handler(job)
        except Later as exc:
            doing.again = _Again(exc.seconds)
        except Exception as exc:  # boundary: one job never takes the others down
            seconds = min(_LONGEST, _SHORTEST * 2 ** min(job.delivery - 1, 10))
            _log.warning("job %r of %r failed, again in %g s: %s", job.key, self._topic, seconds, exc)
            doing.again = _Again(seconds, failed=True)
        else:
            doing.again = None
        finally:
            del self._doing[job.key]
            doing.over.set()

    async def _job(self, execution: Execution, about: str) -> Job | None:
        try:
            known: dict[str, Any] = dict(json.loads(about))
        except (TypeError, ValueError):
            _log.exception("job %r of %r was dropped: what it is about is no JSON object", execution.key, self._topic)
            return None
        deaths = await self._deaths(execution) if execution.redelivered else 0
        return Job(
            topic=self._topic,
            key=execution.key,
            about=known,
            delivery=execution.attempt + deaths,
            deaths=deaths,
        )

    async def _deaths(self, execution: Execution) -> int:
        message = execution.message_id or b""
        docket = self._docket
        async with docket.redis() as redis, redis.pipeline() as pipeline:
            pipeline.xpending_range(docket.stream_key, docket.worker_group_name, message, message, 1)
            (found,) = await pipeline.execute()
        return max(1, found[0]["times_delivered"] - 1) if found else 1


async def _first(*events: anyio.Event) -> None:
    async with anyio.create_task_group() as tasks:

        async def wait(event: anyio.Event) -> None:
            await event.wait()
            tasks.cancel_scope.cancel()

        for event in events:
            tasks.start_soon(wait, event)
