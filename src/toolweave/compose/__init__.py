"""Combinations of packages that must not know each other: servers as tools of agents, a hub as one server.

Wires parts together through their public interfaces. Exports the public names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.compose._agent import Agent, generate, stream
    from toolweave.compose._component import McpComponent, mcp_component
    from toolweave.compose._mcp_tools import McpHooks, McpTools
    from toolweave.compose._pool import McpPool
    from toolweave.compose._registry import AgentRegistry
    from toolweave.compose._registry_sync import attach
    from toolweave.compose._server import hub_server
    from toolweave.compose._user_data import UserData, UserDataCounts
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "_agent": (
                "Agent",
                "generate",
                "stream",
            ),
            "_component": (
                "McpComponent",
                "mcp_component",
            ),
            "_mcp_tools": (
                "McpHooks",
                "McpTools",
            ),
            "_pool": ("McpPool",),
            "_registry": ("AgentRegistry",),
            "_registry_sync": ("attach",),
            "_server": ("hub_server",),
            "_user_data": (
                "UserData",
                "UserDataCounts",
            ),
        },
    )

__all__ = [
    "Agent",
    "AgentRegistry",
    "McpComponent",
    "McpHooks",
    "McpPool",
    "McpTools",
    "UserData",
    "UserDataCounts",
    "attach",
    "generate",
    "hub_server",
    "mcp_component",
    "stream",
]
