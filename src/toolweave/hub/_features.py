"""Server features of a hub beside tools: the prompts and resources of all its servers, under exposed names.

Knows nothing of how servers come and go.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import cast

from toolweave.errors import ProtocolError, ServerError
from toolweave.hub._offers import HubOffers, NamesOffers
from toolweave.protocol.codes import INVALID_PARAMS, RESOURCE_NOT_FOUND
from toolweave.protocol.content import EmbeddedResource
from toolweave.protocol.server_features import (
    Prompt,
    PromptResult,
    Resource,
    ResourceTemplate,
    read_prompt,
    read_resource,
    read_template,
)

_UNKNOWN = (INVALID_PARAMS, RESOURCE_NOT_FOUND)


class HubFeatures:
    """The base class of `Hub` with the server features beside tools, as `McpConnection` has them.

    Prompts are named as tools are. Resources and templates keep their URIs; where two servers have one, that of the
    later is `server+uri`. A server that fails costs the lists only its entries that were not known.
    """

    @cached_property
    def _others(self) -> HubOffers:
        return HubOffers(cast("NamesOffers", self))

    async def list_prompts(self) -> tuple[Prompt, ...]:
        """Return the prompts of all servers."""
        return tuple(map(read_prompt, await self._others.prompts()))

    async def list_resources(self) -> tuple[Resource, ...]:
        """Return the resources of all servers."""
        return tuple(map(read_resource, await self._others.resources()))

    async def list_resource_templates(self) -> tuple[ResourceTemplate, ...]:
        """Return the resource templates of all servers."""
        return tuple(map(read_template, await self._others.templates()))

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
        found = self._others.owner_of_prompt(name)
        if found is None:
            await self._others.prompts()  # learns the names
            found = self._others.owner_of_prompt(name)
        if found is None:
            raise ProtocolError(f"no server has a prompt {name!r}", server="hub", code=INVALID_PARAMS)
        connection, own = found
        return await connection.get_prompt(own, arguments, version=version, timeout=timeout)

    async def read_resource(
        self, uri: str, *, version: str | None = None, timeout: float | None = None
    ) -> tuple[EmbeddedResource, ...]:
        """Return the contents of a resource by its exposed URI; see `McpConnection.read_resource`.

        One that is not listed is requested from every server; the one that has it is asked alone from then on.

        Raises:
            ProtocolError: No server knows it (code -32602), or its server refuses it.
            ServerError: Its server does not answer.
        """
        if not self._others.knows_resource(uri):
            await self._others.resources()  # as above
        failed: ServerError | None = None
        for connection, own in self._others.owners(uri):
            try:
                contents = await connection.read_resource(own, version=version, timeout=timeout)
            except ServerError as error:  # others may have it
                if not isinstance(error, ProtocolError) or error.code not in _UNKNOWN:
                    failed = error
                continue
            self._others.keep_resource(uri, connection.name, own)
            return tuple(one.replace(uri=uri, raw={}) if one.uri == own != uri else one for one in contents)
        raise failed or ProtocolError(f"no server has a resource {uri!r}", server="hub", code=INVALID_PARAMS)
