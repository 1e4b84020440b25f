"""The resources and prompts of all servers of a hub under exposed names; requests go to the owning server.

A server that fails, or is not ready yet, is left out. Knows nothing of the endpoint that serves them.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

import anyio

from toolweave.connect._connection import McpConnection
from toolweave.connect._state import ConnectionState
from toolweave.errors import ProtocolError, ServerError
from toolweave.hub._hub import Hub
from toolweave.hub._naming import without_server
from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from toolweave.tools._toolset import Unsubscribe

__all__ = ["HubOffers"]

_log = logging.getLogger("toolweave.hub")

Json = dict[str, Any]
AnswerT = TypeVar("AnswerT")

_USABLE = frozenset({ConnectionState.READY, ConnectionState.DEGRADED})
_UNKNOWN = frozenset({INVALID_PARAMS, RESOURCE_NOT_FOUND, METHOD_NOT_FOUND})
"""Error codes by which a server answers that it does not have a resource, or no resources at all."""
_MOST_FOLLOWED = 1_000
_FOLLOW_SECONDS = 5.0


class HubOffers:
    """The resources, resource templates and prompts of a hub's servers.

    Args:
        hub: The hub; the caller opens and closes it.
        on_updated: Called with the URI when a resource that was read has changed since.
    """

    def __init__(self, hub: Hub, on_updated: Callable[[str], None] = lambda uri: None) -> None:
        self._hub = hub
        self._on_updated = on_updated
        self._followed: OrderedDict[tuple[McpConnection, str], Unsubscribe] = OrderedDict()

    async def resources(self) -> list[Json]:
        """Return the definitions of all resources, under their own URIs unless another server's has the same."""
        found = await self._from_each("resources", lambda one: one.list_resources())
        listed = [(one, [(resource.uri, resource.raw) for resource in resources]) for one, resources in found]
        return self._named("resource", "uri", listed)

    async def templates(self) -> list[Json]:
        """Return the definitions of all resource templates, likewise."""
        found = await self._from_each("resources", lambda one: one.list_resource_templates())
        listed = [(one, [(template.uri_template, template.raw) for template in templates]) for one, templates in found]
        return self._named("resource template", "uriTemplate", listed)

    async def prompts(self) -> list[Json]:
        """Return the definitions of all prompts, named as the tools of their servers are."""
        found = await self._from_each("prompts", lambda one: one.list_prompts())
        listed = [(one, [(prompt.name, prompt.raw) for prompt in prompts]) for one, prompts in found]
        return self._named("prompt", "name", listed)

    async def read(self, uri: str) -> Json | None:
        """Read a resource from its owning server, else from the first server that has it; None when none has.

        Raises:
            ServerError: It cannot be read.
        """
        await self.resources()  # names what there is
        for connection, own in self.owners(uri):
            await self.follow(connection, own, uri)
            try:
                result = await connection.request(methods.RESOURCES_READ, {"uri": own})
            except ProtocolError as error:
                if error.code not in _UNKNOWN:
                    raise
                continue
            self._hub.given("resource").give((connection.name, own), uri, None)  # and it stays there
            return _with_uri(result, own, uri)
        return None

    async def get_prompt(self, name: str, arguments: Mapping[str, Any]) -> Json | None:
        """Get a prompt by its exposed name; None when there is none.

        Raises:
            ServerError: The prompt cannot be got.
        """
        await self.prompts()
        holder = self._hub.given("prompt").holder(name)
        connection = None if holder is None else self._hub.clients.get(str(holder[0]))
        if holder is None or connection is None:
            return None
        return await connection.request(methods.PROMPTS_GET, {"name": holder[1], "arguments": dict(arguments)})

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

    def _named(
        self, kind: str, member: str, listed: list[tuple[McpConnection, list[tuple[str, Mapping[str, Any]]]]]
    ) -> list[Json]:
        """Return definitions under exposed names, which are given in the order of the servers."""
        named: list[Json] = []
        for connection, definitions in listed:
            if self._hub.clients.get(connection.name) is connection:  # else it went away meanwhile
                raw = dict(definitions)
                names = self._hub.name_others(kind, connection.name, raw)
                named += [{**raw[own], member: name} for name, own in names.items()]
        return named

    def owners(self, uri: str) -> list[tuple[McpConnection, str]]:
        """Return the connections to ask for a resource, with its URI there: only the owner if known, else all."""
        holder = self._hub.given("resource").holder(uri)
        clients = self._hub.clients
        if holder is not None:
            owner = clients.get(str(holder[0]))
            return [] if owner is None else [(owner, holder[1])]
        named = [(one, own) for one in clients.values() if (own := without_server(uri, one.name)) is not None]
        return [*named, *((one, uri) for one in self._offering("resources"))]

    def _offering(self, capability: str) -> list[McpConnection]:
        return [one for one in self._hub.clients.values() if capability in one.capabilities and one.state in _USABLE]

    async def _from_each(
        self, capability: str, ask: Callable[[McpConnection], Awaitable[AnswerT]]
    ) -> list[tuple[McpConnection, AnswerT]]:
        """Ask all servers with this capability concurrently; the answers are in the order of the servers."""
        asked = self._offering(capability)
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

    async def follow(self, connection: McpConnection, own: str, uri: str) -> None:
        """Subscribe to a resource that is about to be read, so that no update after the reading is missed."""
        declared: Any = connection.capabilities.get("resources")
        can = isinstance(declared, dict) and cast("Json", declared).get("subscribe") is True
        if (connection, uri) in self._followed or not can:
            return
        try:
            end = await connection.subscribe_resource(own, lambda _: self._on_updated(uri), timeout=_FOLLOW_SECONDS)
        except ServerError as error:
            _log.info("%s; updates of %r are not told", error, uri)
            return
        self._followed[connection, uri] = end
        if len(self._followed) > _MOST_FOLLOWED:
            self._followed.popitem(last=False)[1]()


def _with_uri(result: Json, own: str, uri: str) -> Json:
    """Return the contents of a resource under the requested URI."""
    contents = result.get("contents")
    if own == uri or not isinstance(contents, list):
        return result
    entries = cast("list[Json]", contents)
    same = [isinstance(entry, dict) and entry.get("uri") == own for entry in entries]  # pyright: ignore[reportUnnecessaryIsInstance]
    renamed = [{**entry, "uri": uri} if is_it else entry for entry, is_it in zip(entries, same, strict=True)]
    return {**result, "contents": renamed}
