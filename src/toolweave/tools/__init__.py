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
    from toolweave.tools._call import (
        IDEMPOTENCY_KEY,
        CallContext,
        Progress,
        ProgressCallback,
        ProgressReporter,
        ToolCall,
    )
    from toolweave.tools._client_requests import Caller, Elicitation, Question, Roots, Sampling
    from toolweave.tools._function import FunctionTool, tool
    from toolweave.tools._media import File
    from toolweave.tools._names import NameMap, ToolName, aliases, expose
    from toolweave.tools._registry import Alias, OnConflict, ToolRegistry
    from toolweave.tools._result import ToolResult
    from toolweave.tools._sources import ToolSource, as_toolset
    from toolweave.tools._spec import ToolSpec
    from toolweave.tools._toolset import (
        Tool,
        ToolList,
        ToolsChanged,
        Toolset,
        ToolSnapshot,
        Unsubscribe,
        changes,
        tools_of,
    )
    from toolweave.tools._wrappers import (
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
    "IDEMPOTENCY_KEY": "_call",
    "Alias": "_registry",
    "AudioContent": ".protocol.content",
    "BaseToolset": "_wrappers",
    "CallContext": "_call",
    "Caller": "_client_requests",
    "ContentBlock": ".protocol.content",
    "Elicitation": "_client_requests",
    "ElicitationResult": ".protocol.client_requests",
    "Elicited": ".protocol.client_requests",
    "EmbeddedResource": ".protocol.content",
    "File": "_media",
    "FunctionTool": "_function",
    "ImageContent": ".protocol.content",
    "LogLevel": ".protocol.logs",
    "NameMap": "_names",
    "OnConflict": "_registry",
    "Progress": "_call",
    "ProgressCallback": "_call",
    "ProgressReporter": "_call",
    "Question": "_client_requests",
    "ResourceLink": ".protocol.content",
    "Root": ".protocol.client_requests",
    "Roots": "_client_requests",
    "Sampling": "_client_requests",
    "SamplingMessage": ".protocol.client_requests",
    "SamplingResult": ".protocol.client_requests",
    "TextContent": ".protocol.content",
    "Tool": "_toolset",
    "ToolCall": "_call",
    "ToolList": "_toolset",
    "ToolName": "_names",
    "ToolRegistry": "_registry",
    "ToolResult": "_result",
    "ToolSnapshot": "_toolset",
    "ToolSource": "_sources",
    "ToolSpec": "_spec",
    "ToolsChanged": "_toolset",
    "Toolset": "_toolset",
    "UnknownContent": ".protocol.content",
    "Unsubscribe": "_toolset",
    "WrapperToolset": "_wrappers",
    "aliases": "_names",
    "as_toolset": "_sources",
    "changes": "_toolset",
    "combined": "_wrappers",
    "enhanced": "_wrappers",
    "expose": "_names",
    "filtered": "_wrappers",
    "prefixed": "_wrappers",
    "renamed": "_wrappers",
    "tool": "_function",
    "tools_of": "_toolset",
    "traced": "_wrappers",
    "transformed": "_wrappers",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
