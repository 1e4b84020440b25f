"""`hub_server`: a hub's servers as one MCP server.

Translates between the interfaces of `hub` and `serve`, and holds no behaviour of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from toolweave.errors import ProtocolError, RequestError, ServerError, as_tool_error
from toolweave.hub import Hub
from toolweave.hub._offers import HubOffers
from toolweave.serve import McpServer, create_mcp_server
from toolweave.serve._offers.prompts import PromptsChanged
from toolweave.serve._offers.registry import ChangeListeners
from toolweave.serve._offers.resources import ResourcesChanged
from toolweave.tools import CallContext, Toolset, Unsubscribe

__all__ = ["hub_server"]

Json = dict[str, Any]


def hub_server(hub: Hub, *, name: str, version: str, tools: Toolset | None = None, **options: Any) -> McpServer:
    """Return one server of a hub's many: their tools, resources and prompts (`options`: of `create_mcp_server`).

    Serving it opens the hub. Clients are notified of changes at the servers, late starts and restarts included. Tools
    and prompts are named `server_name`, or by the server's `tool_prefix`; resources keep their URIs, unless two servers
    have the same one: the later one gets its server's name before the scheme, such as `notes+file:///a`. A name or URI
    stays with the server that had it first, as long as the hub lives, and `hub.warnings` lists the conflicts. `tools`
    is a view of the hub's, where not all are offered, or under other names.
    """
    return create_mcp_server(
        name=name,
        version=version,
        tools=hub if tools is None else tools,
        resources=_Resources(hub),
        prompts=_Prompts(hub),
        **options,
    )


class _Resources:
    """The resources of a hub as a `ResourceSource`."""

    def __init__(self, hub: Hub) -> None:
        self._changes = ChangeListeners[ResourcesChanged]()
        self._offers = HubOffers(hub, on_updated=lambda uri: self._changes.tell(ResourcesChanged(uri)))
        self._offers.on_change("resources", lambda: self._changes.tell(ResourcesChanged()))

    async def resources(self) -> Sequence[Json]:
        return await self._offers.resources()

    async def templates(self) -> Sequence[Json]:
        return await self._offers.templates()

    async def read(self, uri: str, ctx: CallContext) -> Json | None:
        return _members(await _relayed(self._offers.read(uri)), "contents")

    def subscribe(self, listener: Callable[[ResourcesChanged], None]) -> Unsubscribe:
        return self._changes.subscribe(listener)


class _Prompts:
    """The prompts of a hub as a `PromptSource`."""

    def __init__(self, hub: Hub) -> None:
        self._changes = ChangeListeners[PromptsChanged]()
        self._offers = HubOffers(hub)
        self._offers.on_change("prompts", lambda: self._changes.tell(PromptsChanged()))

    async def prompts(self) -> Sequence[Json]:
        return await self._offers.prompts()

    async def get(self, name: str, arguments: Mapping[str, Any], ctx: CallContext) -> Json | None:
        return _members(await _relayed(self._offers.get_prompt(name, arguments)), "description", "messages")

    def subscribe(self, listener: Callable[[PromptsChanged], None]) -> Unsubscribe:
        return self._changes.subscribe(listener)


def _members(result: Json | None, *names: str) -> Json | None:
    """Return the members of a result that do not belong to the connection it came over."""
    return None if result is None else {name: result[name] for name in names if name in result}


async def _relayed(answer: Awaitable[Json | None]) -> Json | None:
    """Return a server's answer; its error becomes an error of this server."""
    try:
        return await answer
    except ProtocolError as error:
        raise RequestError(error.message, code=error.code, data=error.data) from None
    except ServerError as error:
        raise as_tool_error(error) from None
