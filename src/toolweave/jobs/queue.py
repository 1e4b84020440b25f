"""The port of the room: work that some process is to do once, and a backend that has a queue of it beside its store.

Says what a queue promises; knows no queue, and nothing of what the work is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

from toolweave.state import Store

__all__ = ["Handler", "Job", "Later", "WorkBackend", "WorkQueue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Something to be done by one of the workers of a topic.

    Attributes:
        topic: What kind of work it is: only workers that know the topic are given it.
        key: Its name in the topic, and its idempotency key: what waits or is being done is not added again.
        about: What more has to be known, a small JSON object; what is large belongs in the store.
        delivery: How often it was given to a worker, from 1; who handed it back unharmed does not count.
        deaths: How many workers died of it, or were lost for so long that they had to be thought dead.
    """

    topic: str
    key: str
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])
    delivery: int = 1
    deaths: int = 0


Handler: TypeAlias = Callable[[Job], Awaitable[None]]
"""Does a job. A job is delivered at least once: again when its worker died, was shut down, or when this raised.

It may be told to two workers at the same time, when one is lost for a while: what must not happen twice needs a lease.
"""


class Later(Exception):
    """What a handler raises when it is not yet time for a job: it is delivered again, and until then takes no slot.

    Args:
        seconds: When, from now.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"again in {seconds:g} s")
        self.seconds = seconds


@runtime_checkable
class WorkQueue(Protocol):
    """Jobs that workers do, on this machine or on others (DESIGN decision 11)."""

    async def submit(self, job: Job) -> bool:
        """Have a job done; return False when one of its topic and key waits or is being done already.

        Raises:
            StoreError: The queue cannot be reached.
        """
        ...

    async def waiting(self, topic: str, keys: Sequence[str]) -> Sequence[str]:
        """Return those of these keys whose jobs wait, so that `submit` would not add them.

        Raises:
            StoreError: The queue cannot be reached.
        """
        ...

    async def work(
        self, handlers: Mapping[str, Handler], *, concurrency: int = 10, started: Callable[[], None] | None = None
    ) -> None:
        """Do jobs of these topics, each by its handler, until this is cancelled; what is not done then goes elsewhere.

        A job whose handler raised is delivered again after a while that grows with each time.

        Args:
            handlers: By topic.
            concurrency: How many jobs of a topic are done here at the same time.
            started: Called when jobs are taken.

        Raises:
            StoreError: The queue cannot be reached at the start; a later loss is waited out.
        """
        ...


@runtime_checkable
class WorkBackend(Protocol):
    """Where runs and tasks are kept, and who else works on them."""

    @property
    def store(self) -> Store:
        """What is kept, for all processes."""
        ...

    @property
    def queue(self) -> WorkQueue:
        """What is to be done, by any of them."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None: ...
