"""Tools: definitions, calls, results, functions as tools, toolsets and wrappers.

Independent of transports and models.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolweave.protocol.client_requests import (
        ElicitationResult,
        Elicited,
        Root,
        SamplingMessage,
        SamplingResult,
    )
    from toolweave.protocol.content import (
        AudioContent,
        ContentBlock,
        EmbeddedResource,
        ImageContent,
        ResourceLink,
        TextContent,
        UnknownContent,
    )
    from toolweave.protocol.logs import LogLevel
    from toolweave.tools.call import (
        IDEMPOTENCY_KEY,
        CallContext,
        Progress,
        ProgressCallback,
        ProgressReporter,
        ToolCall,
    )
    from toolweave.tools.client_requests import Caller, Elicitation, Question, Roots, Sampling
    from toolweave.tools.function import FunctionTool, tool
    from toolweave.tools.media import File
    from toolweave.tools.names import NameMap, ToolName, aliases, expose
    from toolweave.tools.registry import Alias, OnConflict, ToolRegistry
    from toolweave.tools.result import ToolResult
    from toolweave.tools.sources import ToolSource, as_toolset
    from toolweave.tools.spec import ToolSpec
    from toolweave.tools.toolset import (
        Tool,
        ToolList,
        ToolsChanged,
        Toolset,
        ToolSnapshot,
        Unsubscribe,
        changes,
        tools_of,
    )
    from toolweave.tools.wrappers import (
        BaseToolset,
        WrapperToolset,
        combined,
        enhanced,
        filtered,
        prefixed,
        renamed,
        traced,
        transformed,
    )

__all__ = [
    "IDEMPOTENCY_KEY",
    "Alias",
    "AudioContent",
    "BaseToolset",
    "CallContext",
    "Caller",
    "ContentBlock",
    "Elicitation",
    "ElicitationResult",
    "Elicited",
    "EmbeddedResource",
    "File",
    "FunctionTool",
    "ImageContent",
    "LogLevel",
    "NameMap",
    "OnConflict",
    "Progress",
    "ProgressCallback",
    "ProgressReporter",
    "Question",
    "ResourceLink",
    "Root",
    "Roots",
    "Sampling",
    "SamplingMessage",
    "SamplingResult",
    "TextContent",
    "Tool",
    "ToolCall",
    "ToolList",
    "ToolName",
    "ToolRegistry",
    "ToolResult",
    "ToolSnapshot",
    "ToolSource",
    "ToolSpec",
    "ToolsChanged",
    "Toolset",
    "UnknownContent",
    "Unsubscribe",
    "WrapperToolset",
    "aliases",
    "as_toolset",
    "changes",
    "combined",
    "enhanced",
    "expose",
    "filtered",
    "prefixed",
    "renamed",
    "tool",
    "tools_of",
    "traced",
    "transformed",
]

_HOMES = {
    "IDEMPOTENCY_KEY": "call",
    "Alias": "registry",
    "AudioContent": ".protocol.content",
    "BaseToolset": "wrappers",
    "CallContext": "call",
    "Caller": "client_requests",
    "ContentBlock": ".protocol.content",
    "Elicitation": "client_requests",
    "ElicitationResult": ".protocol.client_requests",
    "Elicited": ".protocol.client_requests",
    "EmbeddedResource": ".protocol.content",
    "File": "media",
    "FunctionTool": "function",
    "ImageContent": ".protocol.content",
    "LogLevel": ".protocol.logs",
    "NameMap": "names",
    "OnConflict": "registry",
    "Progress": "call",
    "ProgressCallback": "call",
    "ProgressReporter": "call",
    "Question": "client_requests",
    "ResourceLink": ".protocol.content",
    "Root": ".protocol.client_requests",
    "Roots": "client_requests",
    "Sampling": "client_requests",
    "SamplingMessage": ".protocol.client_requests",
    "SamplingResult": ".protocol.client_requests",
    "TextContent": ".protocol.content",
    "Tool": "toolset",
    "ToolCall": "call",
    "ToolList": "toolset",
    "ToolName": "names",
    "ToolRegistry": "registry",
    "ToolResult": "result",
    "ToolSnapshot": "toolset",
    "ToolSource": "sources",
    "ToolSpec": "spec",
    "ToolsChanged": "toolset",
    "Toolset": "toolset",
    "UnknownContent": ".protocol.content",
    "Unsubscribe": "toolset",
    "WrapperToolset": "wrappers",
    "aliases": "names",
    "as_toolset": "sources",
    "changes": "toolset",
    "combined": "wrappers",
    "enhanced": "wrappers",
    "expose": "names",
    "filtered": "wrappers",
    "prefixed": "wrappers",
    "renamed": "wrappers",
    "tool": "function",
    "tools_of": "toolset",
    "traced": "wrappers",
    "transformed": "wrappers",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
