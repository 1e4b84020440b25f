"""Many connections as one `Toolset`: concurrent start, partial failure, names, runtime changes.

Refuses to know how a connection works inside, models, agents and how anything is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.hub._connect import connect_mcp_servers
    from toolweave.hub._discover import DiscoveredTools, McpClient, discover_mcp_tools
    from toolweave.hub._explain import ToolExplanation, explain_tool
    from toolweave.hub._hub import Hub
    from toolweave.hub._skill_tools import SkillTools, skill_tools
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "_connect": ("connect_mcp_servers",),
            "_discover": (
                "DiscoveredTools",
                "McpClient",
                "discover_mcp_tools",
            ),
            "_explain": ("ToolExplanation", "explain_tool"),
            "_hub": ("Hub",),
            "_skill_tools": (
                "SkillTools",
                "skill_tools",
            ),
        },
    )

__all__ = [
    "DiscoveredTools",
    "Hub",
    "McpClient",
    "SkillTools",
    "ToolExplanation",
    "connect_mcp_servers",
    "discover_mcp_tools",
    "explain_tool",
    "skill_tools",
]
