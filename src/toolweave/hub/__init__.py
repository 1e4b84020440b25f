"""Many connections as one `Toolset`: concurrent start, partial failure, names, runtime changes.

Refuses to know how a connection works inside, models, agents and how anything is shown.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolweave.hub._discover import DiscoveredTools, McpClient, discover_mcp_tools
    from toolweave.hub._hub import Hub, connect_mcp_servers

__all__ = ["DiscoveredTools", "Hub", "McpClient", "connect_mcp_servers", "discover_mcp_tools"]

_HOMES = {
    "DiscoveredTools": "_discover",
    "Hub": "_hub",
    "McpClient": "_discover",
    "connect_mcp_servers": "_hub",
    "discover_mcp_tools": "_discover",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
