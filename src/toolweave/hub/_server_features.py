"""The servers' features by a hub's exposed names: tools, calls, prompts, resources, completions and ping.

Knows nothing of the hub's lifecycle.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from toolweave.connect import McpConnection
from toolweave.errors import ToolError
from toolweave.hub._fan_out import for_each
from toolweave.hub._offers import HubOffers
from toolweave.hub._tools import HubTools
from toolweave.protocol.content import EmbeddedResource
from toolweave.protocol.server_features import (
    Completion,
    Prompt,
    PromptResult,
    Resource,
    ResourceTemplate,
    read_prompt,
    read_resource,
    read_template,
)
from toolweave.tools import BaseToolset, ProgressCallback, Tool, ToolList, ToolResult


class HubFeatures(BaseToolset, ABC):
    """The base class of `Hub` with the features of its servers, named as `McpConnection` names them."""

    _clients: dict[str, McpConnection]
    _tools: HubTools
    _offers: HubOffers

    @abstractmethod
    def _chosen(self, server: str | None) -> list[McpConnection]:
        """Return the connection to one server, or all.

        Raises:
            ConnectionClosedError: The hub is closed.
            KeyError: There is no such server.
            ServerError: The server could not be used.
        """

    @abstractmethod
    def _missing_tool_error(self, name: str) -> ToolError:
        """Return the error of a call of a tool that is not offered."""

    async def list_tools(self, server: str | None = None, *, timeout: float | None = None) -> ToolList:
        """Return the tools of all servers, or of one server, by their exposed names.

        Lists that are not known to be current are read again. If a server fails, its last known tools stay.

        Raises:
            ConnectionClosedError: The hub is closed.
            KeyError: There is no such server.
            ServerError: The one server that was named could not be asked.
        """

        async def read(client: McpConnection) -> None:
            await client.list_tools(timeout=timeout)

        failures = await for_each(self._chosen(server), read)
        if server is not None and failures:
            raise failures[0][1]
        offered = self.snapshot()
        return ToolList(Tool(spec, self) for spec in offered if server is None or spec.server == server)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        version: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolResult:
        """Call a tool by its exposed name or an alias, such as `server:tool`; see `McpConnection.call_tool`.

        Raises:
            ServerError: Its server does not answer, or answers with a JSON-RPC error.
            ToolError: No server has it, or it is withheld.
        """
        spec = self.snapshot().find(name)
        if spec is None:
            raise self._missing_tool_error(name)
        server, own = self._tools.route(spec.name)
        client = self._clients[server]
        return await client.call_tool(
            own, arguments, timeout=timeout, on_progress=on_progress, version=version, meta=meta
        )

    async def list_prompts(self) -> tuple[Prompt, ...]:
        """Return the prompts of all servers."""
        return tuple(map(read_prompt, await self._offers.prompts()))

    async def list_resources(self) -> tuple[Resource, ...]:
        """Return the resources of all servers."""
        return tuple(map(read_resource, await self._offers.resources()))

    async def list_resource_templates(self) -> tuple[ResourceTemplate, ...]:
        """Return the resource templates of all servers."""
        return tuple(map(read_template, await self._offers.templates()))

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        version: str | None = None,
        timeout: float | None = None,
    ) -> PromptResult:
        """Return a prompt filled in with string arguments, by its exposed name; see `McpConnection.get_prompt`.

        Raises:
            ProtocolError: No server has it (code -32602), or its server refuses the arguments.
            ServerError: Its server does not answer.
        """
        return await self._offers.get_prompt(name, arguments, version=version, timeout=timeout)

    async def read_resource(
        self, uri: str, *, version: str | None = None, timeout: float | None = None
    ) -> tuple[EmbeddedResource, ...]:
        """Return the contents of a resource by its exposed URI; see `McpConnection.read_resource`.

        One that is not listed is requested from every server; the one that has it is asked alone from then on.

        Raises:
            ProtocolError: No server knows it (code -32602), or its server refuses it.
            ServerError: Its server does not answer.
        """
        return await self._offers.read_resource(uri, version=version, timeout=timeout)

    async def complete(
        self,
        ref: Mapping[str, str],
        argument: str,
        value: str,
        *,
        context: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Completion:
        """Return values that complete an argument of a prompt or of a resource template, by its exposed name or URI.

        Args:
            ref: `{"type": "ref/prompt", "name": ...}` or `{"type": "ref/resource", "uri": ...}`.
            argument: The name of the argument.
            value: The beginning of its value.
            context: The values of other arguments.
            timeout: Seconds to wait for the server.

        Raises:
            ProtocolError: No server has it (code -32602), or its server refuses the request.
            ServerError: Its server does not answer.
        """
        client, own = await self._offers.owner_of_reference(ref)
        return await client.complete(own, argument, value, context=context, timeout=timeout)

    async def ping(self, server: str | None = None) -> None:
        """Ping all servers at once, or one server.

        Raises:
            ConnectionClosedError: The hub is closed.
            ExceptionGroup: Servers do not answer, and none was named.
            KeyError: There is no such server.
            ServerError: The one server that was named does not answer.
        """
        failures = [error for _, error in await for_each(self._chosen(server), McpConnection.ping)]
        if server is not None and failures:
            raise failures[0]
        if failures:
            raise ExceptionGroup("some MCP servers do not answer", failures)
