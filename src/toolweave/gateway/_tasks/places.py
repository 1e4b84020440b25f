"""The connections on which the tasks of upstreams run, where these are not the connections of the hub.

A task is known to the process or session in which it began. It begins on the connection of the hub, which outlives its
callers, unless its tool is listed only on the connection that the caller reaches. Ids of tasks carry the place:

- `""`: the connection of the hub;
- `"handshake"`: the connection in the handshake era, which callers of that era share;
- another text: a connection of one caller, which no other caller can use.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import anyio

from toolweave.connect import McpConnection
from toolweave.connect._client_features.callbacks import AnswerRequest
from toolweave.errors import RequestError
from toolweave.gateway._relay.connections import AskingConnection, AskingConnections
from toolweave.gateway._relay.handshake_connections import HandshakeConnections
from toolweave.gateway._relay.routes import Route
from toolweave.hub._starting import USABLE
from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_PARAMS
from toolweave.serve import Client

HANDSHAKE_PLACE = "handshake"
_KEPT_SECONDS = 3600.0
"""Seconds for which a connection is kept for a task whose server names no lifetime."""
_MAX_KEPT_SECONDS = 86_400.0


class TaskPlaces:
    """Finds these connections, and keeps those of callers while a task may run.

    Args:
        connections: The connections that callers have of their own.
        handshakes: The connections in the handshake era to upstreams that speak both.
    """

    def __init__(self, connections: AskingConnections, handshakes: HandshakeConnections) -> None:
        self._connections = connections
        self._handshakes = handshakes

    def elsewhere(self, client: Client, shared: McpConnection, name: str) -> McpConnection | None:
        """Return the connection that a call which may become a task takes; None for that of the hub.

        Args:
            client: The caller.
            shared: The connection of the hub.
            name: The server's own name of the tool.
        """
        first = self._connections.first_of(client, shared.config)
        if first is not None:
            reached = first.connection
        elif client.modern:
            reached = None
        else:
            reached = self._handshakes.known(shared)
        if reached is None or reached.state not in USABLE:
            return None
        if has_only(reached, shared, methods.TOOLS_CALL, {"name": name}):
            return reached
        return None

    def connection(self, client: Client, shared: McpConnection, route: Route) -> McpConnection:
        """Return the connection on which the task of a route runs.

        Raises:
            RequestError: It has ended, or belongs to another caller (-32602).
        """
        if not route.place:
            return shared
        if route.place == HANDSHAKE_PLACE:
            found = self._handshakes.known(shared)
        else:
            found = self._own(client, route)
        if found is None:
            raise RequestError(
                f"Unknown task: the connection to server {route.server!r} on which it ran is not there any more, or is "
                "another caller's",
                code=INVALID_PARAMS,
            )
        return found

    def _own(self, client: Client, route: Route) -> McpConnection | None:
        asking = self._asking(client, route)
        if asking is None:
            return None
        return asking.connection

    def _asking(self, client: Client, route: Route) -> AskingConnection | None:
        found = self._connections.find(route.place, client)
        if found is not None and found.config.name == route.server:
            return found
        return None

    @contextmanager
    def held(self, client: Client, route: Route, answer: AnswerRequest) -> Generator[None]:
        """Keep the connection of a task for the block, and answer the questions of that task by `answer`."""
        asking = self._asking(client, route)
        if asking is None:
            yield
            return
        with asking.used(), asking.answering(route.name, answer):
            yield

    def keep(self, client: Client, route: Route, ttl_ms: float | None) -> None:
        """Keep the connection of a task that has begun for as long as its server keeps the task, a day at most."""
        asking = self._asking(client, route)
        if asking is not None:
            asking.tasks_until = max(asking.tasks_until, kept_until(ttl_ms))


def kept_until(ttl_ms: float | None) -> float:
    """Return the time until which a connection is kept for a task that begins now, with this lifetime or none."""
    seconds = _KEPT_SECONDS if ttl_ms is None else ttl_ms / 1000
    return anyio.current_time() + min(max(seconds, 0.0), _MAX_KEPT_SECONDS)


def has_only(reached: McpConnection, shared: McpConnection, method: str, params: Mapping[str, Any]) -> bool:
    """Whether the subject of a request is listed on one connection to a server, and not on the shared one.

    A further process for the same caller would not have it either.
    """
    if method == methods.TOOLS_CALL:
        name = params.get("name")
        here, there = (any(spec.original_name == name for spec in one.snapshot()) for one in (reached, shared))
        return here and not there
    kind, member = ("prompts", "name") if method == methods.PROMPTS_GET else ("resources", "uri")
    wanted = params.get(member)
    listed = (one.gateway_side.list_facts(kind).items for one in (reached, shared))
    here, there = (any(item.raw[member] == wanted for item in items) for items in listed)
    return here and not there
