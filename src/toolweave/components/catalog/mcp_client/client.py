"""Connects to the servers and puts their tools beside functions of this project."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from toolweave import (
    Hub,
    McpConnection,
    ToolRegistry,
    ToolsChanged,
    Toolset,
    connect_mcp_servers,
)
from toolweave.connect import StateChanged
from toolweave.tools import combined, filtered

from .settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpClients:
    """The open connections.

    Attributes:
        tools: Every tool: the functions, then the servers' as `server_tool`. It follows
            the servers: what they add or take away is added and taken away here.
        hub: The connections: `hub.clients` by name, and `hub.errors` of the others.
    """

    tools: Toolset
    hub: Hub

    async def refresh(self, server: str | None = None) -> ToolsChanged:
        """Ask one server, or all of them, for their tools again."""
        return await self.hub.refresh(server)


@asynccontextmanager
async def connect_servers(
    settings: Settings | None = None, functions: Iterable[Callable[..., Any]] = ()
) -> AsyncGenerator[McpClients, None]:
    """Connect to every server; all connections are closed at the end of the block.

    A server that fails costs the others nothing. One that is lost is started anew, and
    calls of its tools are error results meanwhile.
    """
    settings = settings or Settings()
    async with connect_mcp_servers(settings.servers, wait=settings.wait) as hub:
        hub.on("state", on_state)
        servers = filtered(hub, exclude=settings.exclude)
        tools = combined(ToolRegistry(functions), servers)
        yield McpClients(tools=tools, hub=hub)


def on_state(connection: McpConnection, change: StateChanged) -> None:
    """Called whenever a connection is lost or comes back."""
    log.info("server %s is %s", connection.name, change.state.value)
