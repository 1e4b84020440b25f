"""Toolweave weaves tools from any MCP server into any agent.

The names of this package are the public ones. Each is imported when it is first used, so that
`import toolweave` costs almost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolweave.agent import (
        Agent,
        Approval,
        ClientTool,
        Limits,
        Prompt,
        ResultPolicy,
        Run,
        RunResult,
        generate,
        parallelize,
        stream,
    )
    from toolweave.config import (
        Auth,
        Secret,
        ServerConfig,
        Timeouts,
        load_config,
        merge_config,
        normalize_config,
    )
    from toolweave.connect import (
        Callbacks,
        ConnectionState,
        ElicitationRequest,
        ElicitationResult,
        ListChanged,
        LogMessage,
        McpConnection,
        ResourceUpdated,
        Root,
        SamplingMessage,
        SamplingRequest,
        SamplingResult,
        StateChanged,
        connect_mcp,
        register_transport,
    )
    from toolweave.errors import (
        AuthRequiredError,
        ConfigError,
        ConnectError,
        ConnectionClosedError,
        ConnectionLostError,
        DuplicateToolError,
        ErrorKind,
        ModelError,
        ProtocolError,
        RequestError,
        RequestTimeoutError,
        RunError,
        SchemaError,
        ServerError,
        ToolError,
        ToolExecutionError,
        ToolweaveError,
    )
    from toolweave.hub import Hub, connect_mcp_servers, discover_mcp_tools
    from toolweave.schema import schema_to_model
    from toolweave.serve import McpServer, create_mcp_server
    from toolweave.tools import (
        AudioContent,
        CallContext,
        ContentBlock,
        EmbeddedResource,
        FunctionTool,
        ImageContent,
        NameMap,
        Progress,
        ResourceLink,
        TextContent,
        Tool,
        ToolCall,
        ToolList,
        ToolRegistry,
        ToolResult,
        ToolsChanged,
        Toolset,
        ToolSnapshot,
        ToolSpec,
        UnknownContent,
        as_toolset,
        changes,
        combined,
        enhanced,
        filtered,
        prefixed,
        renamed,
        tool,
        traced,
        transformed,
    )

    __version__: str

__all__ = [
    "Agent",
    "Approval",
    "AudioContent",
    "Auth",
    "AuthRequiredError",
    "CallContext",
    "Callbacks",
    "ClientTool",
    "ConfigError",
    "ConnectError",
    "ConnectionClosedError",
    "ConnectionLostError",
    "ConnectionState",
    "ContentBlock",
    "DuplicateToolError",
    "ElicitationRequest",
    "ElicitationResult",
    "EmbeddedResource",
    "ErrorKind",
    "FunctionTool",
    "Hub",
    "ImageContent",
    "Limits",
    "ListChanged",
    "LogMessage",
    "McpConnection",
    "McpServer",
    "ModelError",
    "NameMap",
    "Progress",
    "Prompt",
    "ProtocolError",
    "RequestError",
    "RequestTimeoutError",
    "ResourceLink",
    "ResourceUpdated",
    "ResultPolicy",
    "Root",
    "Run",
    "RunError",
    "RunResult",
    "SamplingMessage",
    "SamplingRequest",
    "SamplingResult",
    "SchemaError",
    "Secret",
    "ServerConfig",
    "ServerError",
    "StateChanged",
    "TextContent",
    "Timeouts",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolExecutionError",
    "ToolList",
    "ToolRegistry",
    "ToolResult",
    "ToolSnapshot",
    "ToolSpec",
    "ToolsChanged",
    "Toolset",
    "ToolweaveError",
    "UnknownContent",
    "__version__",
    "as_toolset",
    "changes",
    "combined",
    "connect_mcp",
    "connect_mcp_servers",
    "create_mcp_server",
    "discover_mcp_tools",
    "enhanced",
    "filtered",
    "generate",
    "load_config",
    "merge_config",
    "normalize_config",
    "parallelize",
    "prefixed",
    "register_transport",
    "renamed",
    "schema_to_model",
    "stream",
    "tool",
    "traced",
    "transformed",
]

_ROOMS = {
    "agent": (
        "Agent",
        "Approval",
        "ClientTool",
        "Limits",
        "Prompt",
        "ResultPolicy",
        "Run",
        "RunResult",
        "generate",
        "parallelize",
        "stream",
    ),
    "config": ("Auth", "Secret", "ServerConfig", "Timeouts", "load_config", "merge_config", "normalize_config"),
    "connect": (
        "Callbacks",
        "ConnectionState",
        "ElicitationRequest",
        "ElicitationResult",
        "ListChanged",
        "LogMessage",
        "McpConnection",
        "ResourceUpdated",
        "Root",
        "SamplingMessage",
        "SamplingRequest",
        "SamplingResult",
        "StateChanged",
        "connect_mcp",
        "register_transport",
    ),
    "hub": ("Hub", "connect_mcp_servers", "discover_mcp_tools"),
    "schema": ("schema_to_model",),
    "serve": ("McpServer", "create_mcp_server"),
}
"""Rooms of the names that are not of `tools` or, by their ending, of `errors`."""


def _home(name: str) -> str:
    for room, names in _ROOMS.items():
        if name in names:
            return room
    return "errors" if name.endswith("Error") or name == "ErrorKind" else "tools"


def __getattr__(name: str) -> Any:  # whatever the name stands for
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version(__name__)
    elif name in __all__:
        value = getattr(import_module(f"{__name__}.{_home(name)}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
