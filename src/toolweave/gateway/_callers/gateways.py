"""The gateways of callers: one for each caller, before the servers that are called as it.

A gateway of a caller is made with its first request and ends when it is idle for too long. It shares the secrets, the
parked calls, the log levels and the subscribers of the gateway before it, and answers no one but its caller.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import anyio

from toolweave.errors import ErrorKind, ToolError
from toolweave.gateway._callers.hubs import CallerHubs, GatewayCaller
from toolweave.gateway._relay.routes import Routes
from toolweave.hub import Hub
from toolweave.serve import OfferLookup, Request
from toolweave.serve._subscriptions import ResourceFollower
from toolweave.serve._task_spawner import ServingGroups
from toolweave.serve.request import Method
from toolweave.tools import Toolset

_log = logging.getLogger("toolweave.gateway")

_MAX_OF_ONE = 16
"""Gateways of one principal: it has one for each token that is exchanged."""
_MAX_OF_HEADERS = 256
"""Gateways of one principal whose headers are sent on: a program may call for many tenants."""


class InnerGateway(OfferLookup, Protocol):
    """The gateway of one caller, as the shared gateway uses it.

    Attributes:
        hub: The connections of the caller.
        tools: The tools of its servers that are shown.
        routes: Finds the server of a name or URI.
        of_caller: The principal of the caller; `""` for one without.
    """

    hub: Hub
    tools: Toolset
    routes: Routes
    of_caller: str | None

    @property
    def tasks_until(self) -> float:
        """The time until which an upstream may keep a task that began at one of its servers."""
        ...

    @property
    def updates(self) -> ResourceFollower:
        """Follows resources at its servers."""
        ...

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return its methods in an era, without middleware."""
        ...

    def seen(self, request: Request, notification: str) -> object:
        """Return the caller's view of a list, by the notification of its changes."""
        ...

    def running(self) -> AbstractAsyncContextManager[object]:
        """Open its servers for the block."""
        ...


class _CallerGateway:
    """The gateway of one caller while it is there."""

    def __init__(self, caller: GatewayCaller, generation: int) -> None:
        self.caller = caller
        self.generation = generation
        self.gateway: InnerGateway | None = None
        self.users = 0
        self.since = anyio.current_time()
        self.ready = anyio.Event()
        self.over = anyio.Event()

    @property
    def expired(self) -> bool:
        """Whether the token that it was made with has ended."""
        return self.caller.expires_at is not None and self.caller.expires_at <= time.time()

    @property
    def has_tasks(self) -> bool:
        """Whether a task may run that began at one of its servers."""
        return self.gateway is not None and self.gateway.tasks_until > anyio.current_time()


class CallerGateways:
    """The gateways of the callers of one gateway.

    Args:
        hubs: The connections of callers.
        make: Makes the gateway of a caller before its hub.
        groups: The task groups in which the gateway is served.
        max_callers: Maximum number of callers at the same time.
        idle_seconds: Seconds without a request after which the gateway of a caller ends, and with it its connections.
    """

    def __init__(
        self,
        hubs: CallerHubs,
        make: Callable[[GatewayCaller, Hub], InnerGateway],
        groups: ServingGroups,
        *,
        max_callers: int = 1000,
        idle_seconds: float = 300.0,
    ) -> None:
        self.hubs = hubs
        self._make = make
        self._groups = groups
        self._max_callers = max_callers
        self._idle_seconds = idle_seconds
        self._there: dict[str, _CallerGateway] = {}

    def __len__(self) -> int:
        return len(self._there)

    def topic(self, request: Request) -> str | None:
        """Return the name under which changes are announced to the caller of a request, or None."""
        try:
            caller = self.hubs.caller(request)
        except ToolError:
            return request.client.principal
        if caller is None:
            return request.client.principal
        return caller.topic

    def known(self, request: Request) -> InnerGateway | None:
        """Return the gateway of the caller of a request if it is there."""
        try:
            caller = self.hubs.caller(request)
        except ToolError:  # its headers are refused, so it has none
            return None
        found = None if caller is None else self._there.get(caller.key)
        if found is None:
            return None
        return found.gateway

    @asynccontextmanager
    async def lease(self, request: Request) -> AsyncGenerator[InnerGateway | None]:
        """Lease the gateway of the caller of a request until exit; None if no server can be called for it.

        Raises:
            ToolError: There are too many callers, its headers are refused, or it could not be started.
        """
        caller = self.hubs.caller(request)
        if caller is None:
            yield None
            return
        # Counted before the first await: an idle gateway is dropped only while it has no users, so from here it stays.
        one = self._of(caller)
        one.users += 1
        try:
            await one.ready.wait()
            if one.gateway is None or one.over.is_set():
                raise ToolError("the servers of this caller cannot be reached now", kind=ErrorKind.NOT_SENT)
            yield one.gateway
        finally:
            one.users -= 1
            one.since = anyio.current_time()
            self._end_if_done(one)

    def hold(self, request: Request) -> Callable[[], None]:
        """Keep the gateway of a caller that is there; return the end of that, which may be called again.

        Raises:
            ToolError: The headers of the request are refused.
        """
        caller = self.hubs.caller(request)
        one = None if caller is None else self._there.get(caller.key)
        # A list that is emptied: a second call of `end` finds nothing, and cannot release the use of another holder.
        held = [] if one is None else [one]
        for each in held:
            each.users += 1

        def end() -> None:
            while held:
                each = held.pop()
                each.users -= 1
                each.since = anyio.current_time()
                self._end_if_done(each)

        return end

    def _of(self, caller: GatewayCaller) -> _CallerGateway:
        one = self._there.get(caller.key)
        if one is not None and one.generation == self.hubs.generation:
            return one
        # the settings of a server have changed: requests that use the old one may finish
        if one is not None:
            del self._there[caller.key]
            self._end_if_done(one)
        # Two bounds: callers with tokens of one principal, or with headers that they choose, cannot take the places of
        # all others. No await from the check to the new entry, so two requests of one caller get one gateway.
        everybody = list(self._there.values())
        same = [each for each in everybody if caller.principal and each.caller.principal == caller.principal]
        max_same = _MAX_OF_HEADERS if caller.headers else _MAX_OF_ONE
        for among, limit in ((same, max_same), (everybody, self._max_callers)):
            if len(among) >= limit and not self._dropped_idle(among):
                text = "too many callers, or tokens of this one, use servers of their own now; try again later"
                raise ToolError(text, kind=ErrorKind.NOT_SENT, retryable=True)
        one = self._there[caller.key] = _CallerGateway(caller, self.hubs.generation)
        self._groups.current().start_soon(self._serve, one)
        return one

    async def _serve(self, one: _CallerGateway) -> None:
        """Serve one caller until it is over."""
        try:
            hub = self.hubs.take(one.caller)
            try:
                made = self._make(one.caller, hub)
                async with made.running():
                    one.gateway = made
                    one.ready.set()
                    await one.over.wait()
                    # before it closes, so that no request gets a closing hub
                    self.hubs.leave(hub)
                    hub = None
            finally:
                if hub is not None:
                    self.hubs.leave(hub)
        except Exception:  # boundary: a fault of one caller's servers must not end the gateway
            _log.exception("the servers of a caller cannot be served")
        finally:
            # Only if it is still this one: after a change of settings another gateway has the key. `ready` is set also
            # when nothing could be started, because the requests that wait for it would hang; they look at `over`.
            if self._there.get(one.caller.key) is one:
                del self._there[one.caller.key]
            one.over.set()
            one.ready.set()

    def _end_if_done(self, one: _CallerGateway) -> None:
        """Close an evicted gateway when its last lease ends."""
        if not one.users and self._there.get(one.caller.key) is not one:
            one.over.set()

    def _end(self, one: _CallerGateway) -> None:
        if self._there.get(one.caller.key) is one:
            del self._there[one.caller.key]
        self._end_if_done(one)

    def _dropped_idle(self, among: Sequence[_CallerGateway]) -> bool:
        """End the gateway that has been idle for longest, one without tasks first; False when all are in use."""
        idle = [one for one in among if not one.users]
        if idle:
            self._end(min(idle, key=lambda one: (one.has_tasks, one.since)))
        return bool(idle)

    async def sweep(self) -> None:
        """End gateways that are idle for too long, or whose token has ended, until cancelled."""
        while True:
            await anyio.sleep(min(self._idle_seconds / 4, 15.0))
            too_old = anyio.current_time() - self._idle_seconds
            for one in list(self._there.values()):
                idle = not one.users and one.since <= too_old and not one.has_tasks
                if one.expired or idle:
                    self._end(one)
