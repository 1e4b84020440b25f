"""A store and a job queue at one URL.

Redis and docket are imported when a backend is made.
"""

from __future__ import annotations

import os
import uuid
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from toolweave._option_checks import TEXT, check_duration, check_kind
from toolweave.errors import StoreError
from toolweave.jobs.retention import RETENTION, Retention
from toolweave.state import MemoryStore, Store
from toolweave.state._redis_address import REDIS_SCHEMES, RedisAddress, split_name
from toolweave.state.checks import STORE

if TYPE_CHECKING:
    from toolweave.jobs._queue import WorkQueue

BACKEND_VARIABLE = "TOOLWEAVE_BACKEND"
"""The environment variable that names the backend."""


class Backend:
    """The store of runs and tasks, and the job queue of the workers.

    An async context manager, entered by count; connections stay open while it is entered. Without that, `queue.submit`
    opens one for as long as it takes, and the store of Redis opens itself when it is first used.

    With `memory://` everything is in this process: each `Backend("memory://")` has separate jobs, in one event loop,
    and they are gone with it. A worker is needed there too: `work_runs([agent], backend)` beside what submits.

    Args:
        url: `redis://`, `rediss://`, `unix://`, `redis+sentinel://`, or the same as `valkey://` and `valkeys://`;
            `memory://`. See `RedisStore`.
        store: Keeps the runs instead of the store of the URL; a `SqliteStore` beside `memory://`, say.
        name: Separates installations that share a server; may be part of the URL: `?name=staging`.
        redelivery_seconds: Seconds until a job of a silent worker is delivered to another.
        retention: How long runs and conversations of its agents are kept, unless they have a setting of their own.

    Attributes:
        store: The store.
        queue: The job queue.
        where: The printable address, without a password.
        retention: How long the data of its agents is kept, or None for the default.

    Raises:
        StoreError: `[distributed]` is not installed, or the URL has another scheme.
        TypeError: An option is of another type.
        ValueError: `redelivery_seconds` is not more than 0.
    """

    def __init__(
        self,
        url: str = "memory://",
        *,
        store: Store | None = None,
        name: str | None = None,
        redelivery_seconds: float | None = None,
        retention: Retention | None = None,
    ) -> None:
        check_kind("retention", retention, RETENTION)
        if store is not None:
            check_kind("Backend.store", store, STORE)
        check_kind("Backend.url", url, TEXT)
        check_kind("Backend.name", name, TEXT.or_none)
        if redelivery_seconds is not None:
            check_duration("Backend.redelivery_seconds", redelivery_seconds)
        place, found, address = _read(url)
        self.name: str = name or found or "toolweave"
        self.where: str = "memory://" if address is None else address.public_url
        try:
            from toolweave.jobs._docket import REDELIVERY_SECONDS, DocketQueue
        except ImportError as exc:
            missing = (exc.name or "docket").partition(".")[0]
            raise StoreError(f"a queue of work needs {missing}: pip install 'toolweave[distributed]'") from None
        self.retention: Retention | None = retention
        self.store: Store = store or _store(place, self.name, address)
        # Kept beside `queue`, which is a port that has nothing to enter or leave.
        self._made = DocketQueue(
            place,
            name=self.name,
            where=self.where,
            redelivery_seconds=redelivery_seconds or REDELIVERY_SECONDS,
            words=str if address is None else address.mask,
        )
        self.queue: WorkQueue = self._made

    @classmethod
    def from_environment(cls) -> Self:
        """Return the backend that `TOOLWEAVE_BACKEND` names, or one in memory."""
        return cls(os.environ.get(BACKEND_VARIABLE) or "memory://")

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:  # both are entered by count
            # First, because its error is final where the store would name another node of the same cluster.
            await stack.enter_async_context(self._made)
            await stack.enter_async_context(self.store)
            stack.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._made.__aexit__(exc_type, exc, traceback)
        finally:
            await self.store.__aexit__(exc_type, exc, traceback)

    def __repr__(self) -> str:
        return f"<Backend {self.name!r} at {self.where}>"


def _read(url: str) -> tuple[str, str | None, RedisAddress | None]:
    """Return a URL as docket expects it, the name in it, and its address if it has one."""
    plain, name = split_name(url)
    scheme, separator, rest = plain.partition("://")
    if separator and scheme.lower() == "memory":
        # docket's own has one for all of a process
        return f"memory://{uuid.uuid4().hex}", name, None
    address = RedisAddress(plain)
    return f"{REDIS_SCHEMES[scheme.lower()]}://{rest}", name, address


def _store(url: str, name: str, address: RedisAddress | None) -> Store:
    if address is None:
        return MemoryStore()
    from toolweave.state import RedisStore

    return RedisStore(url, prefix=name)
