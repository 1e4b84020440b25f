"""Keeps the tools of a connection in step with the server: pushed changes of every era (requirement D28).

Legacy servers send `notifications/tools/list_changed`; modern ones send it on a `subscriptions/listen`
stream that must be asked for and held (SEP-2575). Either way the list is read again, once for a burst.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio

from toolweave.connect.catalog import Catalog
from toolweave.connect.dial import Line
from toolweave.connect.shapes import as_object
from toolweave.errors import ProtocolError, ServerError

__all__ = ["Follower"]

_log = logging.getLogger("toolweave.connect")
_CHANGED = "notifications/tools/list_changed"
_LISTENING = "notifications/subscriptions/acknowledged"
_DEBOUNCE_SECONDS = 0.05
_RELISTEN_SECONDS = 1.0


class Follower:
    """Reads the tools again when the server says that they changed."""

    def __init__(self, server: str, *, catalog: Catalog, refresh: Callable[[Line], Awaitable[object]]) -> None:
        self._server = server
        self._catalog = catalog
        self._refresh = refresh
        self._stale = anyio.Event()

    def notified(self, method: str) -> None:
        """Take a notification; those about other things are passed over."""
        if method == _CHANGED or (method == _LISTENING and self._catalog.listed):
            # what changed between the listing and the acknowledgement was told to nobody
            self._catalog.expire()
            self._stale.set()

    async def attend(self, line: Line) -> None:
        """Follow the changes for as long as the line holds; begun before the first listing, to miss none."""
        self._catalog.expire()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow, line)
            tools = as_object(line.session.agreement.capabilities.get("tools"))
            if line.session.agreement.modern and tools is not None and tools.get("listChanged"):
                tasks.start_soon(self._listen, line)

    async def _follow(self, line: Line) -> None:
        while True:
            await self._stale.wait()
            await anyio.sleep(_DEBOUNCE_SECONDS)
            self._stale = anyio.Event()
            try:
                await self._refresh(line)
            except ServerError as exc:
                _log.warning("%s", exc)

    async def _listen(self, line: Line) -> None:
        """Hold a listen stream open; nothing is replayed, so the tools are read again after a break."""
        number = 0
        while not line.session.wire.over:
            number += 1
            wanted = {"notifications": {"toolsListChanged": True}}
            try:
                await line.session.request("subscriptions/listen", wanted, request_id=f"listen-{number}")
            except ProtocolError as exc:
                _log.info("server %r: no subscription to tool changes: %s", self._server, exc.message)
                return
            except ServerError as exc:
                _log.info("%s", exc)
            await anyio.sleep(_RELISTEN_SECONDS)
            self._catalog.expire()
            self._stale.set()
