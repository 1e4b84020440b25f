"""The resources and prompts of a hub's servers, together: listed as they came, read and filled in where they are.

A server that fails, or has not come up yet, is left out. Refuses to know who asks.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

import anyio

from toolweave.connect.connection import McpConnection
from toolweave.connect.state import ConnectionState
from toolweave.errors import ProtocolError, ServerError
from toolweave.hub.hub import Hub
from toolweave.tools.names import expose
from toolweave.tools.toolset import Unsubscribe

__all__ = ["HubOffers"]

_log = logging.getLogger("toolweave.hub")

Json = dict[str, Any]
AnswerT = TypeVar("AnswerT")

_USABLE = frozenset({ConnectionState.READY, ConnectionState.DEGRADED})
_UNKNOWN = frozenset({-32602, -32002, -32601})
"""How servers say that they do not have a resource; the last ones have none at all."""
_MOST_FOLLOWED = 1_000
_FOLLOW_SECONDS = 5.0


class HubOffers:
    """What the servers of a hub offer beside tools.

    Args:
        hub: The hub; opened and closed by others.
        on_updated: Called with the URI when a resource that was read has changed since.
    """

    def __init__(self, hub: Hub, on_updated: Callable[[str], None] = lambda uri: None) -> None:
        self._hub = hub
        self._on_updated = on_updated
        self._followed: OrderedDict[tuple[McpConnection, str], Unsubscribe] = OrderedDict()

    async def resources(self) -> list[Json]:
        """Return the definitions of all resources, under their own URIs."""
        found = await self._of_each("resources", lambda one: one.list_resources())
        return [dict(resource.raw) for _, resources in found for resource in resources]

    async def templates(self) -> list[Json]:
        """Return the definitions of all resource templates."""
        found = await self._of_each("resources", lambda one: one.list_resource_templates())
        return [dict(template.raw) for _, templates in found for template in templates]

    async def prompts(self) -> list[Json]:
        """Return the definitions of all prompts, named as the tools of their servers are."""
        found = await self._of_each("prompts", lambda one: one.list_prompts())
        return [{**prompt.raw, "name": _exposed(one, prompt.name)} for one, prompts in found for prompt in prompts]

    async def read(self, uri: str) -> Json | None:
        """Read a resource from the first server that has it; None when none has.

        Raises:
            ServerError: It cannot be read.
        """
        found = await self._of_each("resources", lambda one: one.list_resources())
        listing = [one for one, resources in found if any(resource.uri == uri for resource in resources)]
        for connection in [*listing, *(one for one, _ in found if one not in listing)]:
            await self._follow(connection, uri)
            try:
                return await connection.request("resources/read", {"uri": uri})
            except ProtocolError as error:
                if error.code not in _UNKNOWN:
                    raise
        return None

    async def get_prompt(self, name: str, arguments: Mapping[str, Any]) -> Json | None:
        """Fill in a prompt by its exposed name; None when there is none.

        Raises:
            ServerError: It cannot be filled in.
        """
        for connection, prompts in await self._of_each("prompts", lambda one: one.list_prompts()):
            for prompt in prompts:
                if _exposed(connection, prompt.name) == name:
                    params = {"name": prompt.name, "arguments": dict(arguments)}
                    return await connection.request("prompts/get", params)
        return None

    def on_change(self, capability: str, listener: Callable[[], object]) -> Unsubscribe:
        """Call `listener` when `"resources"` or `"prompts"` of any server change, or a server comes or goes."""

        def moved(connection: McpConnection, change: object) -> None:
            if capability in connection.capabilities:
                listener()

        event = "resources_changed" if capability == "resources" else "prompts_changed"
        ends = (self._hub.on(event, lambda one, change: listener()), self._hub.on("state", moved))

        def unsubscribe() -> None:
            for end in ends:
                end()

        return unsubscribe

    async def _of_each(
        self, capability: str, ask: Callable[[McpConnection], Awaitable[AnswerT]]
    ) -> list[tuple[McpConnection, AnswerT]]:
        """Ask all that offer this at once; the answers are in the order of the servers."""
        asked = [one for one in self._hub.clients.values() if capability in one.capabilities and one.state in _USABLE]
        answers: dict[McpConnection, AnswerT] = {}

        async def one(connection: McpConnection) -> None:
            try:
                answers[connection] = await ask(connection)
            except ServerError as error:
                _log.info("%s", error)

        async with anyio.create_task_group() as tasks:
            for connection in asked:
                tasks.start_soon(one, connection)
        return [(connection, answers[connection]) for connection in asked if connection in answers]

    async def _follow(self, connection: McpConnection, uri: str) -> None:
        """Subscribe to a resource that is about to be read, so that no update after the reading is missed."""
        declared: Any = connection.capabilities.get("resources")
        can = isinstance(declared, dict) and cast("Json", declared).get("subscribe") is True
        if (connection, uri) in self._followed or not can:
            return
        try:
            end = await connection.subscribe_resource(uri, lambda _: self._on_updated(uri), timeout=_FOLLOW_SECONDS)
        except ServerError as error:
            _log.info("%s; updates of %r are not told", error, uri)
            return
        self._followed[connection, uri] = end
        if len(self._followed) > _MOST_FOLLOWED:
            self._followed.popitem(last=False)[1]()


def _exposed(connection: McpConnection, name: str) -> str:
    return expose(connection.name, name, connection.config.tool_prefix)
