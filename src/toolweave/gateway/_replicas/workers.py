"""Changes of one worker of a gateway that reach the others: servers added and removed, and reloads of the config.

Added servers are kept in the shared store, so that a worker that is started later has them. A change made while the
store is unavailable is published when it is back; until then it holds in the worker that made it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from toolweave._json_types import without_members
from toolweave.errors import RequestError, StoreError, ToolweaveError
from toolweave.gateway._config.losses import ReloadTrigger
from toolweave.gateway._replicas.replicas import Replicas
from toolweave.serve.request import Json

_log = logging.getLogger("toolweave.gateway")

_ADDED = "gateway-added"
_KIND = "servers"
_KEPT_SECONDS = 30 * 86_400.0


class ChangesServers(Protocol):
    """The part of a manager that workers use: its own servers, without those of other workers."""

    def request_reload(self, trigger: ReloadTrigger) -> None:
        """Read the config again soon."""
        ...

    async def add_here(self, name: str, config: Any) -> object:
        """Add a server in this process."""
        ...

    async def remove_here(self, name: str) -> None:
        """Remove a server in this process."""
        ...


class WorkerChanges:
    """Publishes the changes of a worker to the others of its group, and applies theirs.

    Args:
        servers: Makes the changes.
        replicas: The other workers.
    """

    def __init__(self, servers: ChangesServers, replicas: Replicas) -> None:
        self._servers = servers
        self._replicas = replicas
        # the config of each server; None for one that was removed
        self._unpublished: dict[str, Any] = {}
        self._behind = False

    @property
    def unpublished(self) -> frozenset[str]:
        """The servers that were added or removed in this worker and are unknown to the others."""
        return frozenset(self._unpublished)

    def listen(self) -> Callable[[], None]:
        """Make the changes of the others from now on; return a function that ends that."""
        ends = self._replicas.on(_KIND, self._heard), self._replicas.on_return(self._returned)

        def end() -> None:
            for one in ends:
                one()

        return end

    async def catch_up(self) -> None:
        """Add the servers that were added before this worker was started."""
        try:
            added = await self._read()
        except StoreError as exc:
            self._behind = True
            _log.warning("%s; servers that were added to other workers are missing in this one until it is back", exc)
            return
        self._behind = False
        for name, config in added[0].items():
            await self._heard({"name": name, "config": config})

    async def added(self, name: str, config: Any) -> None:
        """Publish a server that was added to this worker, unless its config is an object of this process."""
        if isinstance(config, str | dict):
            self._unpublished[name] = config
            await self._publish()

    async def removed(self, name: str) -> None:
        """Publish that a server was removed from this worker."""
        self._unpublished[name] = None
        await self._publish()

    async def _publish(self) -> None:
        """Publish pending changes in their order, as far as the store is available."""
        for name, config in list(self._unpublished.items()):
            try:
                if self._replicas.away is not None:
                    raise self._replicas.unreachable()
                await self._changed(name, config)
                await self._replicas.broadcast(_KIND, {"name": name, "config": config}, group=True)
            except (StoreError, RequestError) as exc:
                _log.error("the other workers are not notified of server %r until the store is back: %s", name, exc)
                return
            # else it was changed once more meanwhile
            if self._unpublished.get(name, self) is config:
                del self._unpublished[name]

    async def _returned(self) -> None:
        """Publish and read the changes that were missed while the store was unavailable."""
        await self._publish()
        if self._behind:
            await self.catch_up()

    async def reload(self, *, confirmed: bool) -> None:
        """Have the others read the config again."""
        await self._notify_others({"name": None, "confirmed": confirmed})

    async def _notify_others(self, body: Json) -> None:
        try:
            await self._replicas.broadcast(_KIND, body, group=True)
        except RequestError as exc:
            _log.error("the other workers could not be notified of a change: %s", exc.message)

    async def _heard(self, body: Json) -> Json:
        name = body["name"]
        try:
            if name is None:
                self._servers.request_reload("confirmed" if body.get("confirmed") is True else "call")
            elif body["config"] is None:
                await self._servers.remove_here(name)
            else:
                await self._servers.add_here(name, body["config"])
        except KeyError:
            pass  # this worker did not have it either
        except ToolweaveError as exc:
            _log.error("a change that another worker made could not be made here: %s", exc)
        return {}

    @property
    def _place(self) -> str:
        return f"added {self._replicas.group}"

    async def _read(self) -> tuple[Mapping[str, Any], int]:
        found = await self._replicas.store.get(_ADDED, self._replicas.group)
        if found is None:
            opened = None
        else:
            opened = self._replicas.opened(found.value, self._place)
        return opened or {}, 0 if found is None else found.revision

    async def _changed(self, name: str, config: Any) -> None:
        """Keep a change for workers that are started later."""
        while True:
            added, revision = await self._read()
            rest = without_members(added, name)
            value = rest if config is None else {**rest, name: config}
            sealed = self._replicas.sealed(value, self._place)
            place = self._replicas.group
            if await self._replicas.store.put(_ADDED, place, sealed, ttl=_KEPT_SECONDS, expect=revision):
                return
