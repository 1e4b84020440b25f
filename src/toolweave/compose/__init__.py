"""Combinations of packages that must not know each other: servers as tools of agents, a hub as one server.

Wires parts together through their public interfaces. Exports the public names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolweave.compose._agent import Agent, generate, stream
    from toolweave.compose._component import McpComponent, mcp_component
    from toolweave.compose._mcp_tools import McpHooks, McpTools
    from toolweave.compose._pool import McpPool
    from toolweave.compose._registry import AgentRegistry
    from toolweave.compose._registry_sync import attach
    from toolweave.compose._server import hub_server

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
    "Agent": "_agent",
    "AgentRegistry": "_registry",
    "McpComponent": "_component",
    "McpHooks": "_mcp_tools",
    "McpPool": "_pool",
    "McpTools": "_mcp_tools",
    "attach": "_registry_sync",
    "generate": "_agent",
    "hub_server": "_server",
    "mcp_component": "_component",
    "stream": "_agent",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
