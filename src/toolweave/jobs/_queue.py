"""The ports of this package: a queue of durable jobs, and a backend with a queue and a store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self, TypeAlias, runtime_checkable

from toolweave._json_types import JsonObject, new_object
from toolweave.state import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job for one of the workers of a topic.

    Attributes:
        topic: The kind of work: a worker receives jobs of the topics it handles only.
        key: Its name in the topic, and its idempotency key: a job that waits or runs is not added again.
        payload: Its payload, a small JSON object; large values belong in the store.
        delivery: The number of deliveries to workers, from 1; one that was handed back unharmed does not count.
        deaths: The number of workers that died of it, or were silent for so long that they count as dead.
        after_outage: Whether the queue or the store refused this worker a few seconds ago: other workers may live and
            have leases that they could not renew.
    """

    topic: str
    key: str
    payload: JsonObject = field(default_factory=new_object)
    delivery: int = 1
    deaths: int = 0
    after_outage: bool = False


Handler: TypeAlias = Callable[[Job], Awaitable[None]]
"""Runs a job. Delivery is at least once: again when its worker died or was shut down, or when the handler raised.

Two workers may have it at the same time, when one is silent for a while: what must not happen twice needs a lease.
"""


class Reschedule(Exception):
    """Raised by a handler to postpone a job: it is delivered again, and takes no slot until then.

    Args:
        seconds: When, from now.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"again in {seconds:g} s")
        self.seconds = seconds


class HandOver(Reschedule):
    """Raised by a handler that stops its job between two steps, because its worker stops: another one continues."""

    def __init__(self) -> None:
        super().__init__(0)


@runtime_checkable
class WorkQueue(Protocol):
    """A queue of jobs for workers on this machine or on others."""

    async def submit(self, job: Job) -> bool:
        """Submit a job; return False when one of its topic and key waits or runs already.

        Raises:
            StoreError: The queue cannot be reached.
        """
        ...

    async def hasten(self, job: Job) -> None:
        """Have a job delivered now that was postponed, and submit it if it is not there.

        Raises:
            StoreError: The queue cannot be reached.
        """
        ...

    async def waiting(self, topic: str, keys: Sequence[str]) -> Sequence[str]:
        """Return those of these keys whose jobs wait: `submit` would not add them.

        Raises:
            StoreError: The queue cannot be reached.
        """
        ...

    async def work(
        self,
        handlers: Mapping[str, Handler],
        *,
        concurrency: int = 10,
        grace_seconds: float = 0,
        started: Callable[[], None] | None = None,
    ) -> None:
        """Run jobs of these topics, each by its handler, until this is cancelled; unfinished ones are handed back.

        A job whose handler raised is delivered again after a backoff.

        Args:
            handlers: By topic.
            concurrency: Maximum jobs of a topic that run here at the same time.
            grace_seconds: Seconds that running jobs may take to end after the cancellation; no new ones are accepted
                then, and those left are cancelled.
            started: Called when jobs are accepted.

        Raises:
            StoreError: The queue cannot be reached at the start; a later loss is waited out.
        """
        ...


@runtime_checkable
class WorkBackend(Protocol):
    """A store of runs and tasks, and the job queue of their workers."""

    @property
    def store(self) -> Store:
        """The store that all processes share."""
        ...

    @property
    def queue(self) -> WorkQueue:
        """The job queue that all processes share."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None: ...
