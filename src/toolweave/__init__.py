"""Toolweave weaves tools from any MCP server into any agent.

The names of this package are the ones that most programs need. Each is imported when it is first used, so that
`import toolweave` costs almost nothing. The other public names are those of its rooms: `toolweave.tools`,
`toolweave.connect`, `toolweave.models`, `toolweave.errors` and so on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolweave.version import VERSION as _VERSION

if TYPE_CHECKING:
    from toolweave.agent import (
        ApprovalRequested,
        ClientTool,
        Event,
        Limits,
        Prompt,
        Run,
        RunFinished,
        RunResult,
        RunStarted,
        TextDelta,
        ThinkingDelta,
        ToolFinished,
        ToolStarted,
        spawn_tools,
    )
    from toolweave.compose import Agent, AgentRegistry, McpPool, McpTools, generate, mcp_component, stream
    from toolweave.config import ServerConfig, load_config
    from toolweave.connect import Callbacks, McpConnection, connect_mcp
    from toolweave.errors import (
        AuthRequiredError,
        ConfigError,
        ConnectError,
        ConnectionClosedError,
        ConnectionLostError,
        ErrorKind,
        ModelError,
        ProtocolError,
        RequestTimeoutError,
        ToolError,
        ToolweaveError,
    )
    from toolweave.hub import Hub, connect_mcp_servers, discover_mcp_tools
    from toolweave.jobs import Backend
    from toolweave.models import ScriptedModel, tool_call
    from toolweave.serve import McpServer, create_mcp_server
    from toolweave.state import SqliteStore
    from toolweave.tools import (
        CallContext,
        ImageContent,
        Progress,
        TextContent,
        Tool,
        ToolCall,
        ToolList,
        ToolRegistry,
        ToolResult,
        ToolsChanged,
        Toolset,
        ToolSpec,
        tool,
    )
else:
    from toolweave._lazy import lazy_exports as _lazy_exports

    __getattr__, __dir__ = _lazy_exports(
        __name__,
        {
            "agent": (
                "ApprovalRequested",
                "ClientTool",
                "Event",
                "Limits",
                "Prompt",
                "Run",
                "RunFinished",
                "RunResult",
                "RunStarted",
                "TextDelta",
                "ThinkingDelta",
                "ToolFinished",
                "ToolStarted",
                "spawn_tools",
            ),
            "compose": (
                "Agent",
                "AgentRegistry",
                "McpPool",
                "McpTools",
                "generate",
                "mcp_component",
                "stream",
            ),
            "config": (
                "ServerConfig",
                "load_config",
            ),
            "connect": (
                "Callbacks",
                "McpConnection",
                "connect_mcp",
            ),
            "errors": (
                "AuthRequiredError",
                "ConfigError",
                "ConnectError",
                "ConnectionClosedError",
                "ConnectionLostError",
                "ErrorKind",
                "ModelError",
                "ProtocolError",
                "RequestTimeoutError",
                "ToolError",
                "ToolweaveError",
            ),
            "hub": (
                "Hub",
                "connect_mcp_servers",
                "discover_mcp_tools",
            ),
            "jobs": ("Backend",),
            "models": (
                "ScriptedModel",
                "tool_call",
            ),
            "serve": (
                "McpServer",
                "create_mcp_server",
            ),
            "state": ("SqliteStore",),
            "tools": (
                "CallContext",
                "ImageContent",
                "Progress",
                "TextContent",
                "Tool",
                "ToolCall",
                "ToolList",
                "ToolRegistry",
                "ToolResult",
                "ToolSpec",
                "ToolsChanged",
                "Toolset",
                "tool",
            ),
        },
    )


__all__ = [
    "Agent",
    "AgentRegistry",
    "ApprovalRequested",
    "AuthRequiredError",
    "Backend",
    "CallContext",
    "Callbacks",
    "ClientTool",
    "ConfigError",
    "ConnectError",
    "ConnectionClosedError",
    "ConnectionLostError",
    "ErrorKind",
    "Event",
    "Hub",
    "ImageContent",
    "Limits",
    "McpConnection",
    "McpPool",
    "McpServer",
    "McpTools",
    "ModelError",
    "Progress",
    "Prompt",
    "ProtocolError",
    "RequestTimeoutError",
    "Run",
    "RunFinished",
    "RunResult",
    "RunStarted",
    "ScriptedModel",
    "ServerConfig",
    "SqliteStore",
    "TextContent",
    "TextDelta",
    "ThinkingDelta",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolFinished",
    "ToolList",
    "ToolRegistry",
    "ToolResult",
    "ToolSpec",
    "ToolStarted",
    "ToolsChanged",
    "Toolset",
    "ToolweaveError",
    "__version__",
    "connect_mcp",
    "connect_mcp_servers",
    "create_mcp_server",
    "discover_mcp_tools",
    "generate",
    "load_config",
    "mcp_component",
    "spawn_tools",
    "stream",
    "tool",
    "tool_call",
]

__version__ = _VERSION
