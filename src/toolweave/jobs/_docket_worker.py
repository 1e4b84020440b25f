"""A worker of one topic: docket's worker delivers the jobs, a task group of ours runs them.

These are separate so that a job continues while the queue is unreachable, and is handed back at once on shutdown.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import os
import socket
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import anyio
import anyio.abc
from docket import Docket, Execution, Worker
from docket.dependencies import FailureHandler, current_execution, current_worker
from docket.dependencies import TaskOutcome as Outcome
from redis.exceptions import ResponseError

from toolweave._backoff import backoff
from toolweave._json_types import Json, JsonObject
from toolweave.errors import StoreError
from toolweave.jobs._lease import machine, process_is_dead
from toolweave.jobs._messages import FUNCTION, Messages, PlainDocket, in_plain
from toolweave.jobs._queue import Handler, Job, Reschedule

SILENT_SECONDS = 4.0
"""Seconds without a heartbeat until a worker's jobs are delivered to others."""
_LOOK_SECONDS = 1.0
_SETTLED_MILLISECONDS = 200
"""A job that was delivered so recently may just have been taken over by another worker."""
_FORGOTTEN_SECONDS = 3600.0
"""Seconds without a heartbeat until a worker that holds no jobs is forgotten."""


def worker_name() -> str:
    """Return a name for a worker of this process that holds its machine and process id."""
    return f"{socket.gethostname()}#{_here()}#{os.getpid()}#{uuid.uuid4().hex[:8]}"


class Liveness:
    """Sends the heartbeat of one worker, and finds the jobs of dead ones; on Redis, not in memory.

    Args:
        docket: Open.
        name: The worker.
    """

    def __init__(self, docket: PlainDocket, name: str) -> None:
        self._docket = docket
        self._name = name
        self._next = 0.0
        self._alone = docket.url.startswith("memory:")

    async def look(self, redis: Any, max_jobs: int) -> Messages:
        """Send a heartbeat, about once a second, and return jobs of dead workers, which are this worker's now.

        Args:
            redis: A plain client.
            max_jobs: Maximum number of jobs; 0 only sends the heartbeat.
        """
        if self._alone or time.monotonic() < self._next:
            return []
        # Set before the first await: of several reads that begin now, one looks.
        self._next = time.monotonic() + _LOOK_SECONDS
        await redis.set(self._key(self._name), b"", px=int(SILENT_SECONDS * 1000))
        taken: Messages = []
        if max_jobs <= 0:
            return taken
        try:
            workers = await redis.xinfo_consumers(self._docket.stream_key, self._docket.worker_group_name)
        except ResponseError:  # the stream was not read yet
            return taken
        for worker in workers:
            name = worker["name"].decode(errors="replace")
            if name == self._name or len(taken) >= max_jobs:
                continue
            if await self._is_dead(redis, name, worker):
                taken += await self._taken(redis, name, max_jobs - len(taken))
        return await self._docket.checked(redis, taken)

    async def _is_dead(self, redis: Any, name: str, worker: JsonObject) -> bool:
        """Whether a worker is dead and holds jobs; one that is dead and holds none is forgotten."""
        here = _process_of(name)
        # Workers of this machine are checked by their process, at once. Of others only silence shows that they may be
        # dead.
        is_gone = here is not None and process_is_dead(here)
        idle_seconds = worker["idle"] / 1000
        is_silent = idle_seconds >= SILENT_SECONDS
        if worker["pending"]:
            if is_gone or not is_silent:
                return is_gone
            # its heartbeat may have been evicted, so its last read counts too
            return not await redis.exists(self._key(name))
        is_forgotten = is_gone and is_silent
        if is_forgotten or idle_seconds >= _FORGOTTEN_SECONDS:
            await redis.xgroup_delconsumer(self._docket.stream_key, self._docket.worker_group_name, worker["name"])
        return False

    async def _taken(self, redis: Any, name: str, max_jobs: int) -> Messages:
        stream = self._docket.stream_key
        group = self._docket.worker_group_name
        taken: Messages = []
        for held in await redis.xpending_range(stream, group, "-", "+", max_jobs, consumername=name):
            # of several workers that see this at once one gets it: for the others it was delivered too recently
            idle = max(held["time_since_delivered"], _SETTLED_MILLISECONDS)
            taken += await redis.xclaim(stream, group, self._name, idle, [held["message_id"]])
        return taken

    def _key(self, name: str) -> str:
        return self._docket.key(f"alive:{name}")


def _here() -> str:
    return hashlib.sha256(machine().encode()).hexdigest()[:12]


def _process_of(name: str) -> int | None:
    """Return the process id of a worker of this machine; None for one of another."""
    parts = name.rsplit("#", 3)
    if os.name != "posix" or len(parts) != 4:
        return None
    _, place, process, _ = parts
    if place != _here() or not process.isdecimal():
        return None
    return int(process)


_log = logging.getLogger("toolweave.jobs")
_SHORTEST = 1.0
_LONGEST = 60.0
"""Seconds until a job that failed is delivered again."""
_RECONNECT_SECONDS = 1.0
_RENEWAL_SECONDS = 5.0
"""Seconds in which a holder whose lease expired in an outage has renewed it; every holder tries more often."""
_SPARE = 1
"""Free slots that docket sees beyond the real ones."""
_GIVEN_BEFORE = b"__redelivery__"
"""The name under which docket's loop receives redelivered messages."""
_HAND_BACK_SECONDS = 30.0


class _Again(Exception):
    """Raised to end a delivery and request another.

    Args:
        seconds: When, from now.
        failed: Whether this delivery counts.
    """

    def __init__(self, seconds: float, *, failed: bool = False) -> None:
        super().__init__(seconds)
        self.seconds = seconds
        self.failed = failed


class _Redeliver(FailureHandler["_Redeliver"]):
    """Requeues a job instead of finishing it; its message is acknowledged atomically with that."""

    async def __aenter__(self) -> Self:
        return self

    async def handle_failure(self, execution: Execution, outcome: Outcome) -> bool:
        if isinstance(outcome.exception, _Again):
            again = outcome.exception
        else:
            again = _Again(_LONGEST, failed=True)
        execution.when = datetime.now(UTC) + timedelta(seconds=again.seconds)  # noqa: TID251 - docket's own clock
        # A job that is postponed or handed back did not fail, so its next wait is not longer.
        execution.attempt += again.failed
        await in_plain(execution).schedule(
            replace=True, reschedule_message=execution.message_id, expected_generation=execution.generation
        )
        return True

    @classmethod
    @asynccontextmanager
    async def worker_lifecycle(cls, docket: Docket, worker: Worker) -> AsyncGenerator[None, None]:
        """Notify the topic when its worker begins and stops to accept jobs."""
        if isinstance(worker, _DocketWorker):
            topic = worker.topic
        else:
            topic = None
        if topic is not None:
            topic.taking()
        try:
            yield
        finally:
            if topic is not None:
                topic.not_taking()


class _DocketWorker(Worker):
    topic: TopicWorker


async def _do(payload: str, _redeliver: _Redeliver = _Redeliver()) -> None:  # noqa: B008 - how docket is asked for it
    worker = current_worker.get()
    if isinstance(worker, _DocketWorker):
        await worker.topic.do(current_execution.get(), payload)


def open_docket(url: str, name: str) -> PlainDocket:
    """Return a docket, not yet entered, with the one function and without stored results."""
    quiet = logging.getLogger("docket")
    if quiet.level == logging.NOTSET:  # it logs each job, and each second of an outage
        quiet.setLevel(logging.CRITICAL)
    docket = PlainDocket(name, url)
    docket.register(_do, names=[FUNCTION])
    return docket


class _SlotReader:
    """Gives a docket worker as many jobs as it has free slots, and wakes it when one is done.

    docket would sleep for a fixed time without a free slot. So it sees one slot more than there is, always reads, and
    the read waits here.

    Args:
        docket: Of the worker.
        name: Of the worker.

    Attributes:
        freed: Set when a slot becomes free.
        closed: Whether the worker accepts no more jobs; its heartbeat continues.
    """

    def __init__(self, docket: PlainDocket, name: str) -> None:
        self.docket = docket
        self.freed = anyio.Event()
        self.closed = False
        self._liveness = Liveness(docket, name)

    async def read(self, redis: Any, **arguments: Any) -> Sequence[tuple[bytes, Messages]]:
        """Return new jobs, or those of dead workers; wait for a free slot or a job, within docket's own timeout."""
        room = 0 if self.closed else arguments["count"] - _SPARE
        abandoned = await self._liveness.look(redis, room)
        if abandoned:
            return [(_GIVEN_BEFORE, abandoned)]
        # docket would sleep for a fixed time without a free slot: wait for the next one here instead.
        if room <= 0:
            with anyio.move_on_after(arguments["block"] / 1000):
                await self.freed.wait()
            self.freed = anyio.Event()
            return []
        # Everything from Redis is checked before docket sees it: docket unpickles what it reads.
        found = await redis.xreadgroup(**arguments | {"count": room})
        return [(stream, await self.docket.checked(redis, messages)) for stream, messages in found]

    async def take_over(self, redis: Any, **arguments: Any) -> Sequence[Any]:
        """Return jobs that a silent worker has held for too long, as many as there are free slots."""
        room = 0 if self.closed else arguments["count"] - _SPARE
        if room <= 0:
            return [arguments["start_id"].encode(), []]
        cursor, messages, *rest = await redis.xautoclaim(**arguments | {"count": room})
        return [cursor, await self.docket.checked(redis, messages), *rest]


@dataclass(slots=True)
class _RunningJob:
    """A job that is running.

    Attributes:
        ended_or_lost: Set when it ended, or the queue was lost; replaced for its next delivery.
        over: Whether it has ended.
        again: The request for another delivery, or None.
    """

    ended_or_lost: anyio.Event = field(default_factory=anyio.Event)
    over: bool = False
    again: _Again | None = None


class TopicWorker:
    """Runs the jobs of one topic.

    Args:
        docket: Open.
        topic: As jobs name it.
        handler: Runs a job.
        concurrency: Maximum jobs at the same time.
        redelivery: Seconds until jobs of a silent worker are delivered to another.

    Attributes:
        ready: Set when jobs are accepted.
    """

    def __init__(
        self, docket: PlainDocket, topic: str, handler: Handler, *, concurrency: int, redelivery: timedelta
    ) -> None:
        self.ready = anyio.Event()
        self._name = worker_name()
        self._reading = _SlotReader(docket, self._name)
        self._docket = docket
        self._topic = topic
        self._handler = handler
        self._concurrency = concurrency
        self._redelivery = redelivery
        self._doing: dict[str, _RunningJob] = {}
        self._group: anyio.abc.TaskGroup | None = None
        self._stopping = False  # no job is started any more
        self._handing_back = False  # running jobs are cancelled
        self._ended = anyio.Event()
        # when the queue came back, or the store last refused a job
        self._last_outage = -math.inf

    async def work(self, stop: anyio.Event, grace_seconds: float) -> None:
        """Run jobs until `stop`; hand back those that have not ended `grace_seconds` later, within a timeout."""
        worker = _DocketWorker(
            self._docket,
            name=self._name,
            concurrency=self._concurrency + _SPARE,
            message_batch=self._concurrency + _SPARE,  # so that the count of a read shows the number of free slots
            redelivery_timeout=self._redelivery,
            reconnection_delay=timedelta(seconds=_RECONNECT_SECONDS),
            schedule_automatic_tasks=False,
        )
        worker.topic = self
        self._docket.readers[self._name] = self._reading
        # docket must not be cancelled with its jobs: it would wait for them, or leave them to their timeout
        # The outer group has our jobs and the inner one docket's loop, so that jobs continue while the loop reconnects.
        with anyio.CancelScope(shield=True) as scope:
            async with anyio.create_task_group() as self._group, anyio.create_task_group() as loop, worker:
                loop.start_soon(worker.run_forever)
                await stop.wait()
                self._stopping = self._reading.closed = True
                with anyio.move_on_after(grace_seconds):
                    await self._all_ended()
                self._handing_back = True
                scope.deadline = anyio.current_time() + _HAND_BACK_SECONDS
                # hands all jobs back
        self._docket.readers.pop(self._name, None)

    async def do(self, execution: Execution, payload: str) -> None:
        """Run one job, or continue to wait for it, as docket's delivery of it."""
        task = asyncio.current_task()  # docket's, which has its room until it ends
        if task is not None:
            task.add_done_callback(lambda _: self._reading.freed.set())
        # A job that runs already was delivered again after an outage: this delivery waits for the same end.
        doing = self._doing.get(execution.key)
        if doing is None:
            job = await self._job(execution, payload)
            if job is None:
                return
            if self._stopping or self._group is None:
                raise _Again(0)
            doing = self._doing[execution.key] = _RunningJob()
            self._group.start_soon(self._handle, job, doing)
        await doing.ended_or_lost.wait()
        if not doing.over:  # the queue was lost: the job continues, and will be delivered again
            raise _Again(0)
        if doing.again is not None:
            raise doing.again

    async def _all_ended(self) -> None:
        """Wait until no job runs."""
        # Nothing is awaited between the look and the new event, so the end of the last job is seen by either.
        while self._doing:
            self._ended = anyio.Event()
            await self._ended.wait()

    def taking(self) -> None:
        """Note that docket accepts jobs."""
        if self.ready.is_set():
            _log.warning("topic %r: the queue is back", self._topic)
            self._last_outage = anyio.current_time()
        self.ready.set()

    def not_taking(self) -> None:
        """Note that docket accepts no more jobs: it is stopped, or the queue was lost."""
        if self._handing_back and self._group is not None:
            self._group.cancel_scope.cancel()
        else:
            _log.warning("topic %r: the queue is lost; trying again every %g s", self._topic, _RECONNECT_SECONDS)
            for doing in self._doing.values():
                # Docket's deliveries end with the queue; the jobs run on. The event is replaced before it is set: the
                # next delivery of the same job waits for the new one.
                ended_or_lost = doing.ended_or_lost
                doing.ended_or_lost = anyio.Event()
                ended_or_lost.set()

    async def _handle(self, job: Job, doing: _RunningJob) -> None:
        doing.again = _Again(0)  # unless it gets further
        try:
            await self._handler(job)
        except Reschedule as exc:
            doing.again = _Again(exc.seconds)
        except Exception as exc:  # boundary: one job never takes the others down
            if isinstance(exc, StoreError):
                self._last_outage = anyio.current_time()
            # By the number of deliveries, which the queue counts: the wait grows although each delivery may be in
            # another process, and after a restart.
            seconds = backoff(job.delivery, first=_SHORTEST, longest=_LONGEST)
            _log.warning("job %r of %r failed, again in %g s: %s", job.key, self._topic, seconds, exc)
            doing.again = _Again(seconds, failed=True)
        else:
            doing.again = None
        finally:
            # Together and without an await, whatever happened: a delivery that arrives now begins the job again, one
            # that waits already gets its outcome.
            del self._doing[job.key]
            doing.over = True
            doing.ended_or_lost.set()
            self._ended.set()

    async def _job(self, execution: Execution, payload: str) -> Job | None:
        try:
            known: Json = dict(json.loads(payload))
        except (TypeError, ValueError):
            _log.exception("job %r of %r was dropped: its payload is not a JSON object", execution.key, self._topic)
            return None
        if execution.redelivered:
            deaths = await self._deaths(execution)
        else:
            deaths = 0
        return Job(
            topic=self._topic,
            key=execution.key,
            payload=known,
            delivery=execution.attempt + deaths,
            deaths=deaths,
            after_outage=anyio.current_time() - self._last_outage < _RENEWAL_SECONDS,
        )

    async def _deaths(self, execution: Execution) -> int:
        message = execution.message_id or b""
        docket = self._docket
        async with docket.redis() as redis, redis.pipeline() as pipeline:
            pipeline.xpending_range(docket.stream_key, docket.worker_group_name, message, message, 1)
            (found,) = await pipeline.execute()
        if found:
            return max(1, found[0]["times_delivered"] - 1)
        return 1
