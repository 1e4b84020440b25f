"""Combinations of packages that must not know each other: servers as tools of agents, a hub as one server.

Wires parts together through their public interfaces. Exports the public names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolweave.compose.agent import Agent, generate, stream
    from toolweave.compose.component import McpComponent, mcp_component
    from toolweave.compose.mcp_tools import McpHooks, McpTools
    from toolweave.compose.pool import McpPool
    from toolweave.compose.registry import AgentRegistry
    from toolweave.compose.registry_sync import attach
    from toolweave.compose.server import hub_server

__all__ = [
    "Agent",
    "AgentRegistry",
    "McpComponent",
    "McpHooks",
    "McpPool",
    "McpTools",
    "attach",
    "generate",
    "hub_server",
    "mcp_component",
    "stream",
]

_HOMES = {
    "Agent": "agent",
    "AgentRegistry": "registry",
    "McpComponent": "component",
    "McpHooks": "mcp_tools",
    "McpPool": "pool",
    "McpTools": "mcp_tools",
    "attach": "registry_sync",
    "generate": "agent",
    "hub_server": "server",
    "mcp_component": "component",
    "stream": "agent",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
