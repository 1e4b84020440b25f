"""Detection of dead workers, whose jobs others take over.

A worker of this machine is dead when its process is; one of another machine when it sent no heartbeat for a while.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
import uuid
from collections.abc import Mapping
from typing import Any

from redis.exceptions import ResponseError

from toolweave.jobs._lease import machine, process_is_dead
from toolweave.jobs._messages import Messages, PlainDocket

__all__ = ["SILENT_SECONDS", "Liveness", "worker_name"]

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

    async def look(self, redis: Any, most: int) -> Messages:
        """Send a heartbeat, about once a second, and return jobs of dead workers, which are this worker's now.

        Args:
            redis: A plain client.
            most: Maximum number of jobs; 0 only sends the heartbeat.
        """
        if self._alone or time.monotonic() < self._next:
            return []
        self._next = time.monotonic() + _LOOK_SECONDS
        await redis.set(self._key(self._name), b"", px=int(SILENT_SECONDS * 1000))
        taken: Messages = []
        if most <= 0:
            return taken
        try:
            workers = await redis.xinfo_consumers(self._docket.stream_key, self._docket.worker_group_name)
        except ResponseError:  # nobody has read from the stream yet
            return taken
        for worker in workers:
            name = worker["name"].decode(errors="replace")
            if name != self._name and len(taken) < most and await self._is_dead(redis, name, worker):
                taken += await self._taken(redis, name, most - len(taken))
        return await self._docket.checked(redis, taken)

    async def _is_dead(self, redis: Any, name: str, worker: Mapping[str, Any]) -> bool:
        """Whether a worker is dead and holds jobs; one that is dead and holds none is forgotten."""
        here = _process_of(name)
        gone = here is not None and process_is_dead(here)
        silent = worker["idle"] / 1000
        if worker["pending"]:
            # its heartbeat may have been evicted, and its last read is known too
            return gone or (silent >= SILENT_SECONDS and not await redis.exists(self._key(name)))
        if (gone and silent >= SILENT_SECONDS) or silent >= _FORGOTTEN_SECONDS:
            await redis.xgroup_delconsumer(self._docket.stream_key, self._docket.worker_group_name, worker["name"])
        return False

    async def _taken(self, redis: Any, name: str, most: int) -> Messages:
        stream, group = self._docket.stream_key, self._docket.worker_group_name
        taken: Messages = []
        for held in await redis.xpending_range(stream, group, "-", "+", most, consumername=name):
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
    if os.name != "posix" or len(parts) != 4 or parts[1] != _here() or not parts[2].isdecimal():
        return None
    return int(parts[2])
