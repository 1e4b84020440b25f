"""What a server offers beside its tools: resources, prompts, completions and the sign of life.

Makes requests through the `Caller` it is given; knows nothing of how the connection lives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio

from toolweave.config import ServerConfig
from toolweave.connect.calls import Caller
from toolweave.connect.listing import list_all
from toolweave.connect.offers import (
    Completion,
    Prompt,
    PromptResult,
    Resource,
    ResourceTemplate,
    completion,
    prompt_result,
    read_prompts,
    read_resources,
    read_templates,
    resource_contents,
)
from toolweave.errors import ProtocolError
from toolweave.tools.result import EmbeddedResource

__all__ = ["ServerFeatures"]


class ServerFeatures:
    """The part of a connection that is not about tools; `McpConnection` adds the rest."""

    config: ServerConfig
    _caller: Caller

    async def list_resources(self, *, timeout: float | None = None) -> tuple[Resource, ...]:
        """Return all the server's resources, every page of them; none when it offers no resources."""
        return read_resources(await self._list("resources", "resources/list", "resources", timeout))

    async def list_resource_templates(self, *, timeout: float | None = None) -> tuple[ResourceTemplate, ...]:
        """Return all the server's resource templates, every page of them."""
        return read_templates(await self._list("resources", "resources/templates/list", "resourceTemplates", timeout))

    async def read_resource(self, uri: str, *, timeout: float | None = None) -> tuple[EmbeddedResource, ...]:
        """Return the contents of a resource.

        Raises:
            ProtocolError: The server does not know it (code -32602, or -32002 from older servers).
        """
        return resource_contents(
            await self._caller.request("resources/read", {"uri": uri}, timeout), server=self.config.name
        )

    async def list_prompts(self, *, timeout: float | None = None) -> tuple[Prompt, ...]:
        """Return all the server's prompts, every page of them; none when it offers no prompts."""
        return read_prompts(await self._list("prompts", "prompts/list", "prompts", timeout))

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> PromptResult:
        """Return a prompt filled in with string arguments."""
        params = {"name": name, "arguments": dict(arguments or {})}
        return prompt_result(await self._caller.request("prompts/get", params, timeout), server=self.config.name)

    async def complete(
        self,
        ref: Mapping[str, str],
        argument: str,
        value: str,
        *,
        context: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Completion:
        """Return values that complete an argument of a prompt or of a resource template.

        `ref` is `{"type": "ref/prompt", "name": ...}` or `{"type": "ref/resource", "uri": ...}`.
        """
        params: dict[str, Any] = {"ref": dict(ref), "argument": {"name": argument, "value": value}}
        if context:
            params["context"] = {"arguments": dict(context)}
        return completion(await self._caller.request("completion/complete", params, timeout))

    async def ping(self) -> None:
        """Ask for a sign of life: `ping`, or `server/discover` where that is gone (2026-07-28)."""
        line = await self._caller.line()
        await self._caller.request("server/discover" if line.session.agreement.modern else "ping", {})

    async def _list(self, capability: str, method: str, key: str, timeout: float | None) -> list[Any]:
        await self._caller.line()
        seconds = self.config.timeout.list if timeout is None else timeout
        try:
            with anyio.fail_after(seconds):
                listing = await self._caller.once_more(
                    lambda line: list_all(line.session.request, method, key, server=self.config.name)
                )
                return listing.entries
        except TimeoutError as exc:
            raise self._caller.too_slow(method, seconds) from exc
        except ProtocolError as exc:
            # servers that advertise what they do not offer are common: an empty list, not a fault
            if exc.code == -32601 or capability not in self._offered:
                return []
            raise

    @property
    def _offered(self) -> Mapping[str, Any]:
        line = self._caller.last_line
        return line.session.agreement.capabilities if line else {}
