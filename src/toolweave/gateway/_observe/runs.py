"""The runs of agents in a store, for the gateway's console: listed, and answered.

The gateway executes none of them: workers, or their programs, resume a run that was answered.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeAlias

from toolweave.agent import RunStatuses
from toolweave.errors import ConfigError, StoreError, printable
from toolweave.jobs import Backend, WorkBackend, WorkQueue
from toolweave.state import Store, open_store

_log = logging.getLogger("toolweave.gateway")

RunsPlace: TypeAlias = str | WorkBackend | Store
"""The location of runs: the URL or path of a store, a store, or a backend."""
_FIELD = "gateway.runs"


class StoredRuns:
    """The runs of a store.

    Args:
        place: Their location. With the URL of a backend, such as `redis://`, its workers continue answered runs.

    Attributes:
        store: The store.
        statuses: The runs.
        has_workers: Whether workers continue answered runs; else the program of the agent resumes them.

    Raises:
        ConfigError: The URL names no store, or a package for it is not installed.
    """

    def __init__(self, place: RunsPlace) -> None:
        self._opened: Store | Backend | None = None
        self.store: Store
        self.store, queue = self._read(place)
        self.statuses: RunStatuses = RunStatuses(self.store, queue=queue)
        self.has_workers: bool = queue is not None

    def _read(self, place: RunsPlace) -> tuple[Store, WorkQueue | None]:
        if isinstance(place, Store):
            self._opened = place
            return place, None
        if not isinstance(place, str):  # the owner of a backend opens it
            return place.store, place.queue
        scheme, separator, _ = place.partition("://")
        if separator and scheme.lower() == "memory":
            text = "memory:// is the memory of one process, where no runs of others are"
            raise ConfigError(f"{_FIELD!r}: {text}", field=_FIELD)
        try:
            if not separator or scheme.lower() == "sqlite":
                self._opened = open_store(place)
                return self._opened, None
            made = Backend(place)
        except (StoreError, ValueError) as error:
            raise ConfigError(f"{_FIELD!r}: {error}", field=_FIELD) from None
        self._opened = made
        return made.store, made.queue

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None, None]:
        """Keep the store open during the block; one that cannot be reached is tried again when it is used."""
        async with AsyncExitStack() as stack:
            if self._opened is not None:
                try:
                    await stack.enter_async_context(self._opened)
                except StoreError as error:
                    _log.warning("the store of runs for the console cannot be opened: %s", printable(str(error)))
            yield
