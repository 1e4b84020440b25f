"""The server: tools and agents as the settings want them, results as `bridge` does."""

from __future__ import annotations

from collections.abc import Iterable

from toolweave import McpServer, create_mcp_server
from toolweave.serve import AgentLike
from toolweave.tools import as_toolset, filtered, transformed

from .bridge import for_clients
from .settings import Settings
from .tools import TOOLS


def create_server(
    settings: Settings | None = None, agents: Iterable[AgentLike] = ()
) -> McpServer:
    """Return the server, ready for a transport.

    `TOOLS` may hold functions, connections, hubs and other toolsets. Agents are offered
    as tools that take a message, and only those that the settings name.
    """
    settings = settings or Settings()
    offered = filtered(as_toolset(TOOLS), include=settings.tools)
    return create_mcp_server(
        name=settings.name,
        version=settings.version,
        instructions=settings.instructions,
        tools=transformed(offered, for_clients),
        agents=[agent for agent in agents if agent.name in settings.agents],
        expose_errors="message" if settings.show_errors else "masked",
    )
