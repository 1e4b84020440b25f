"""The job queue over docket: one docket for each topic, so that a worker receives jobs of the topics it handles only.

It holds nothing but keys and JSON text (`messages.py`), and keeps no results. `topic.py` runs the jobs.
"""

from __future__ import annotations

import json
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import anyio
from docket import Disposition, Docket, Execution
from redis.asyncio import Redis
from redis.exceptions import RedisError

from toolweave.errors import StoreError
from toolweave.jobs._docket_worker import TopicWorker, open_docket
from toolweave.jobs._messages import FUNCTION, PlainDocket, in_plain
from toolweave.jobs._queue import Handler, Job
from toolweave.state._redis_connections import is_failed_over, is_temporary

T = TypeVar("T")

REDELIVERY_SECONDS = 15.0
"""Seconds until a job of a silent worker is delivered to another; at most half as long again."""
_REACH_SECONDS = 15.0
_FAILOVER_PAUSE_SECONDS = 0.2
_CLUSTER_SECONDS = 2.0
_PLAIN_SCHEMES = ("redis://", "rediss://", "unix://")
"""Schemes of servers that may be nodes of a cluster; Sentinels never lead to one."""
_FAR_SECONDS = 120.0
"""A job that waits for longer was postponed by a worker whose clock is ahead."""


@dataclass(slots=True)
class _OpenDockets:
    """The dockets that are open in one event loop; they can be used in no other."""

    entered: int = 0
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    dockets: dict[str, PlainDocket] = field(default_factory=dict[str, PlainDocket])


class DocketQueue:
    """A `WorkQueue` over docket; see `Backend`.

    Entered by count, in each event loop. Where it is not entered, `submit` and `work` open what they need for as long
    as they take.

    Args:
        url: As docket expects it.
        name: Separates the jobs from those of other installations on the same server.
        where: The printable address, without a password.
        redelivery_seconds: Seconds until a job of a silent worker is delivered to another.
        words: Removes the secrets of the URL from a text.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        where: str,
        redelivery_seconds: float = REDELIVERY_SECONDS,
        words: Callable[[str], str] = str,
    ) -> None:
        self._url = url
        self._name = name
        self._where = where
        self._words = words
        self._redelivery = timedelta(seconds=redelivery_seconds)
        self._loops: dict[AbstractEventLoop, _OpenDockets] = {}

    async def submit(self, job: Job) -> bool:
        """Submit a job; return False when one of its topic and key waits or runs already.

        One that is due in more than two minutes becomes due now.

        Raises:
            StoreError: The queue cannot be reached, or the job's payload is not JSON.
        """
        payload = _payload(job)
        return await self._reached(lambda: self._submitted(job, payload))

    async def _submitted(self, job: Job, payload: str) -> bool:
        async with self._docket(job.topic) as docket:
            now = datetime.now(UTC)  # noqa: TID251 - docket's own clock
            execution = _execution(docket, job.key, payload, now)
            added = await execution.schedule() is Disposition.SCHEDULED
            # A worker with a wrong clock may have postponed it far into the future: the job is delivered now instead.
            if not added and await _due(docket, job.key) > now.timestamp() + _FAR_SECONDS:
                await execution.schedule(replace=True)
        return added

    async def hasten(self, job: Job) -> None:
        """Have a job delivered now that was postponed, and submit it if it is not there.

        One that is being delivered now, and is about to be postponed, is delivered once more: its postponement is of
        an older generation then, and docket ignores it.

        Raises:
            StoreError: The queue cannot be reached, or the job's payload is not JSON.
        """
        payload = _payload(job)

        async def replace() -> None:
            async with self._docket(job.topic) as docket:
                now = datetime.now(UTC)  # noqa: TID251 - docket's own clock
                await _execution(docket, job.key, payload, now).schedule(replace=True)

        await self._reached(replace)

    async def waiting(self, topic: str, keys: Sequence[str]) -> Sequence[str]:
        """Return those of these keys whose jobs wait and are due within two minutes.

        Raises:
            StoreError: The queue cannot be reached.
        """
        # The same bound as for `submit`, which replaces what is due later: a job that both left alone would wait for
        # the wrong clock of a worker that has long ended.
        latest = datetime.now(UTC).timestamp() + _FAR_SECONDS  # noqa: TID251 - docket's own clock

        async def look() -> list[bytes | None]:
            async with self._docket(topic) as docket, docket.redis() as redis:
                pipeline = redis.pipeline()
                for key in keys:
                    pipeline.hget(docket.runs_key(key), "known")  # when it is due
                return await pipeline.execute()

        found = await self._reached(look)
        return [key for key, due in zip(keys, found, strict=True) if due is not None and float(due) <= latest]

    async def work(
        self,
        handlers: Mapping[str, Handler],
        *,
        concurrency: int = 10,
        grace_seconds: float = 0,
        started: Callable[[], None] | None = None,
    ) -> None:
        """Run jobs of these topics until this is cancelled; unfinished ones are then handed back.

        Args:
            handlers: By topic.
            concurrency: Maximum jobs of a topic that run here at the same time.
            grace_seconds: Seconds that running jobs may take to end after the cancellation; no new ones are accepted
                then, and those left are cancelled.
            started: Called when jobs are accepted.

        Raises:
            StoreError: The queue cannot be reached at the start; a later loss is waited out.
        """
        stop = anyio.Event()
        async with self:
            workers = [await self._worker(topic, handlers[topic], concurrency) for topic in handlers]
            async with anyio.create_task_group() as tasks:
                try:
                    for worker in workers:
                        tasks.start_soon(worker.work, stop, grace_seconds)
                    for worker in workers:
                        await worker.ready.wait()
                    if started is not None:
                        started()
                    await anyio.sleep_forever()
                finally:
                    stop.set()

    async def __aenter__(self) -> Self:
        """Open it.

        Raises:
            StoreError: Its server is a node of a cluster.
        """
        opened = self._loops.get(get_running_loop())
        if opened is None:
            await self._refuse_cluster()
            opened = self._loops.setdefault(get_running_loop(), _OpenDockets())
        opened.entered += 1
        return self

    async def _refuse_cluster(self) -> None:
        """Raise an error if the server is a node of a cluster: the keys of a queue belong to several nodes.

        A server that does not answer, or not this user, decides nothing here. The first job or the worker reports it.
        """
        if not self._url.startswith(_PLAIN_SCHEMES):
            return
        kind: Any = Redis  # its types are partly unknown
        found: Mapping[str, Any] = {}
        with anyio.move_on_after(_CLUSTER_SECONDS), suppress(RedisError, OSError):
            async with kind.from_url(self._url) as redis:
                found = await redis.info("cluster")
        if found.get("cluster_enabled"):
            raise StoreError(
                f"the queue at {self._where} is at a node of a Redis Cluster, which jobs do not support: "
                "give the address of a Redis or Valkey that is not in cluster mode"
            )

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # By event loop: connections belong to the loop that opened them, and each loop closes its own.
        opened = self._loops[get_running_loop()]
        opened.entered -= 1
        if opened.entered:
            return
        del self._loops[get_running_loop()]
        # Shielded, since a worker closes when it is cancelled; bounded, since the server may be why.
        with anyio.CancelScope(shield=True), anyio.move_on_after(_REACH_SECONDS):
            for docket in opened.dockets.values():
                await docket.__aexit__(None, None, None)

    def __repr__(self) -> str:
        return f"<DocketQueue {self._name!r} at {self._where}>"

    async def _worker(self, topic: str, handler: Handler, concurrency: int) -> TopicWorker:
        async def look() -> PlainDocket:
            async with self._docket(topic) as docket, docket.redis() as redis:
                # A command that the server has to answer: docket connects lazily, and an address that is wrong should
                # fail at the start and not with the first job.
                await redis.exists(docket.stream_key)
            return docket

        # A worker that starts during a failover waits as one that has started: its store was reached a moment ago.
        docket = await self._reached(look, patient=True)
        return TopicWorker(docket, topic, handler, concurrency=concurrency, redelivery=self._redelivery)

    @asynccontextmanager
    async def _docket(self, topic: str) -> AsyncGenerator[PlainDocket, None]:
        """Return the docket of a topic, which stays open as long as the queue."""
        # docket's name is the prefix of its keys and patterns
        name = f"{quote(self._name, safe='')}:{quote(topic, safe=':')}"
        opened = self._loops.get(get_running_loop())
        if opened is None:
            async with open_docket(self._url, name) as docket:
                yield docket
            return
        # One docket a topic: two tasks that open the same one at once would leave one of them open.
        async with opened.lock:
            if topic not in opened.dockets:
                opened.dockets[topic] = await open_docket(self._url, name).__aenter__()
        yield opened.dockets[topic]

    async def _reached(self, ask: Callable[[], Awaitable[T]], *, patient: bool = False) -> T:
        """Call `ask`, again while the server is not the primary any more, or not yet; return its result.

        The operation may be done twice: a job that waits already is not added again. With `patient`, also while the
        server is away.

        Raises:
            StoreError: The queue cannot be reached, or not as the primary in time.
        """
        reason = f"does not answer within {_REACH_SECONDS:g} s"
        temporary = True
        # The reason is the last error of the server, if there was one: it explains more than the timeout.
        with anyio.move_on_after(_REACH_SECONDS):
            while True:
                try:
                    return await ask()
                except (RedisError, OSError) as exc:
                    reason = f"cannot be used: {self._words(str(exc) or type(exc).__name__)}"
                    temporary = is_temporary(exc)
                    if not is_failed_over(exc) and not (patient and temporary):
                        break
                await anyio.sleep(_FAILOVER_PAUSE_SECONDS)
        raise StoreError(f"the queue at {self._where} {reason}", is_temporary=temporary)


def _payload(job: Job) -> str:
    try:
        return json.dumps(dict(job.payload), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise StoreError(f"the payload of job {job.key!r} of {job.topic!r} is not JSON: {exc}") from None


def _execution(docket: PlainDocket, key: str, payload: str, when: datetime) -> Execution:
    function = docket.tasks[FUNCTION]
    return in_plain(Execution(docket, function, (payload,), {}, key, when, 1, function_name=FUNCTION))


async def _due(docket: Docket, key: str) -> float:
    """Return when a postponed job is due; 0 for one that was not postponed."""
    async with docket.redis() as redis:
        return await redis.zscore(docket.queue_key, key) or 0.0
